"""The deployment controller: fleets of hosts, provisioning of versions, routes."""
