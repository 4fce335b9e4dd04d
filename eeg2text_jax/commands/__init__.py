"""The commands: functions `argv -> exit status` in modules by topic; `overview` lists them."""
