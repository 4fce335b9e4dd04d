"""The commands: functions `argv -> exit status` in modules by topic; `overview.py` lists them."""
