"""URIs that would make the server connect to loopback, link-local and other addresses inside: nobody is called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs in a network of its own, in which this machine has the address of metadata services too. Prints the connections
#: that were made to a listener on every address, and the status of each request.
PROBE = r"""
import json, socket, subprocess, sys, threading
from pathlib import Path
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer

def main():
    METADATA = "169.254.169.254"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", METADATA + "/32", "dev", "lo"], check=True)
    seen = []

    def listen(family, address, port):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen()
        def accept():
            while True:
                connection, peer = listener.accept()
                seen.append([address, listener.getsockname()[1], peer[0]])
                connection.close()
        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    port = listen(socket.AF_INET, "127.0.0.1", 0)
    listen(socket.AF_INET6, "::1", port)
    for at in (80, 443, port):
        listen(socket.AF_INET, METADATA, at)

    socket.create_connection(("127.0.0.1", port)).close()  # the listeners work
    socket.create_connection((METADATA, 80)).close()
    socket.create_connection(("::1", port)).close()
    while len(seen) < 3:
        pass
    seen.clear()

    hosts = [
        METADATA, "%s:%d" % (METADATA, port), "127.0.0.1:%d" % port, "[::1]:%d" % port, "localhost:%d" % port,
        "0.0.0.0:%d" % port, "2130706433:%d" % port, "0x7f.1:%d" % port, "127.1:%d" % port,
        "[::ffff:127.0.0.1]:%d" % port, "user@127.0.0.1:%d" % port,
    ]
    schemes = ["http", "https", "ftp", "gopher", "file", "s3", "gs", "git+http", "docker", "tcp"]
    uris = ["%s://%s/a/package-1.0.tar.gz" % (scheme, hosts[0]) for scheme in schemes]
    uris += ["%s://%s/a/package-1.0.tar.gz" % (scheme, host) for scheme in ("http", "gs") for host in hosts[1:]]
    uris += ["//%s/a" % hosts[2], "file:///etc/passwd", "gopher://127.0.0.1:%d/_x" % port]

    server = RunningServer(Path(sys.argv[1]), {"image_registries": "registry.example"}).start()
    call, statuses = Caller(server.url), {}
    def send(what, path, body):
        status, _ = call("POST", path, token=server.token, body=body)
        statuses.setdefault(what, []).append(status)

    send("bucket", "/storage/v1/b?project=probes", {"name": "fetches"})
    send("model", "/v1/projects/probes/models", {"name": "m"})
    jobs, versions = "/v1/projects/probes/jobs", "/v1/projects/probes/models/m/versions"
    numbers = []
    def name():
        numbers.append(0)
        return "n%d" % len(numbers)
    base = {"region": "r", "runtimeVersion": "python", "pythonModule": "a.b", "packageUris": ["gs://fetches/no-1.0.tar.gz"]}
    for uri in uris:
        send("packageUris", jobs, {"jobId": name(), "trainingInput": {**base, "packageUris": [uri]}})
        send("jobDir", jobs, {"jobId": name(), "trainingInput": {**base, "jobDir": uri}})
        prediction = {"region": "r", "dataFormat": "JSON", "runtimeVersion": "2.15"}
        for field in ("uri", "inputPaths", "outputPath"):
            given = {"uri": "gs://fetches/m", "inputPaths": ["gs://fetches/i"], "outputPath": "gs://fetches/o"}
            given[field] = [uri] if field == "inputPaths" else uri
            send(field, jobs, {"jobId": name(), "predictionInput": {**prediction, **given}})
        version = {"deploymentUri": "gs://fetches/m", "runtimeVersion": "python"}
        send("deploymentUri", versions, {**version, "name": name(), "deploymentUri": uri})
        routine = {"packageUris": [uri], "predictionClass": "a.B"}
        send("version packages", versions, {**version, "name": name(), **routine})
    for host in hosts:
        image = {"masterConfig": {"imageUri": host + "/image:latest"}}
        send("imageUri", jobs, {"jobId": name(), "trainingInput": {"region": "r", **image}})
        send("container", versions, {"name": name(), "container": {"image": host + "/image"}})
    # whatever was accepted has failed or was refused before anything is counted
    deadline_states = {"SUCCEEDED", "FAILED", "CANCELLED"}
    def pending():
        created = server.call("GET", jobs + "?pageSize=500").get("jobs", [])
        deployed = server.call("GET", versions + "?pageSize=500").get("versions", [])
        return [job["jobId"] for job in created if job["state"] not in deadline_states] + [
            version["name"] for version in deployed if version["state"] not in ("READY", "FAILED")]
    eventually(pending, lambda left: not left)
    server.kill()
    server.end_jobs()
    print(json.dumps({"seen": seen, "statuses": {what: sorted(set(each)) for what, each in statuses.items()}}))

if __name__ == "__main__":  # servers are forked from a process that imports this
    main()
"""


@pytest.mark.fault("F65")
def test_no_uri_makes_the_server_connect_to_an_address_inside(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network of its own can be made here")
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    command = ["unshare", "--net", sys.executable, str(script), str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seen"] == []
    statuses = found["statuses"]
    assert statuses.pop("bucket") == statuses.pop("model") == [200]
    assert {what: each for what, each in statuses.items() if max(each) >= 500} == {}
