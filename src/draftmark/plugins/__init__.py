"""Plug-ins that engines load into their own process; never imported by the rest."""
