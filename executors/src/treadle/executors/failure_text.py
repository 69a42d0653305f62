"""An error as one line of text, from its stored parts."""


def error_text(error: str, message: str, place: str = "") -> str:
    """A readable error: `orders.csv, line 17: ValueError: no number`. For treadle's own errors the message alone is
    complete."""
    if place and not message.startswith(place):
        return f"{place}: {error_text(error, message)}"
    if not error or (message and error.startswith("treadle.")):
        return message
    return f"{error}: {message}" if message else error
