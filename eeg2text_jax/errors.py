"""The exceptions whose message is meant for the user."""


class UserError(Exception):
    """Input that a user can mend.

    The message is one sentence that names the file, the field or line, what was expected, what came and what to
    do. The command line prints it without a traceback and exits with status 2.
    """


class Terminated(BaseException):
    """The run was told to end by SIGTERM, and has left behind what the next one goes on from.

    No `Exception`, as nothing that catches errors shall hold it up. The command line prints it and exits with status
    143, as after the signal itself.
    """
