"""Public data: its connections to the real Cloud Storage, as the machine's environment leads there, and its mirrors."""

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
    """Public data of the real Cloud Storage, as the machine's environment leads there."""
    machine = MachineEnvironment.read(environment())
    connect = None
    if core.settings.public_data and core.settings.serves_gs(has_google_credentials=machine.has_google_credentials):
        egress = machine_egress(machine.https_proxy, machine.no_proxy)
        connect = PublicStorageConnector(egress, machine.ca_files).connect
    return PublicData(connect, PublicMirrors(core.home.path / "public", samples_folder))
