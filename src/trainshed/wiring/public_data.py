"""Builds public data: its mirrors, and connections to the real Cloud Storage by the machine's own network settings."""

from __future__ import annotations

from trainshed.config import environment
from trainshed.proxy.connect_proxy import machine_egress
from trainshed.proxy.interception import MachineEnvironment
from trainshed.proxy.public_storage import PublicStorageConnector
from trainshed.sample_files import samples_folder
from trainshed.services.storage.public_data import PublicData
from trainshed.services.storage.public_mirrors import PublicMirrors
from trainshed.wiring.core import Core


def build_public_data(core: Core) -> PublicData:
    """Return public data. Connections to the real Cloud Storage use the machine's own network settings."""
    machine = MachineEnvironment.read(environment())
    connect = None
    if core.settings.public_data and core.settings.serves_gs(has_google_credentials=machine.has_google_credentials):
        egress = machine_egress(machine.https_proxy, machine.no_proxy)
        connect = PublicStorageConnector(egress, machine.ca_files).connect
    return PublicData(connect, PublicMirrors(core.home.path / "public", samples_folder))
