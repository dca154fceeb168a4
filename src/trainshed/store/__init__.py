"""Rows: named SQL, migrations, SQLite and PostgreSQL, write conflicts."""
