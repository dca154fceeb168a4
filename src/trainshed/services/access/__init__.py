"""Tokens, sessions, policies, projects."""
