"""The one exception whose message is meant for the user."""


class UserError(Exception):
    """Input that a user can mend.

    The message is one sentence that names the file, the field or line, what was expected, what came and what to
    do. The command line prints it without a traceback and exits with status 2.
    """
