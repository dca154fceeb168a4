"""The audit record, and sign-in by OpenID Connect: values and rules."""
