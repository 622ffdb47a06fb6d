"""What happened, kept in one SQLite file and never lost."""
