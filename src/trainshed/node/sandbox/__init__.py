"""The sandbox around user code: namespaces, mounts, a filter of system calls, and Landlock. It needs no daemon."""
