"""The engine of a Ray cluster. All code that knows Ray is in this package.

A remote replica is reached through this chain. Everything up to the bridge runs on the server's machine:

    supervisor > replica proxy > (socket) bridge > Ray > AgentActor > agent > replica

The replica proxy and the agent are in `node/remote`: they know no Ray and would serve another cluster.
"""
