"""Values and rules of access beyond roles: the audit record."""
