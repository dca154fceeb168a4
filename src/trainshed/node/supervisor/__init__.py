"""The supervisor of one attempt: restart policy, start order, log writer, failure message."""
