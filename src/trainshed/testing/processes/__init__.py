"""Real processes that tests start: servers, gateways, hosts, browsers, shells."""
