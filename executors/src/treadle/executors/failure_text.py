"""One line for an error, from what is kept of it."""


def error_text(error: str, message: str, place: str = "") -> str:
    """An error for people: `orders.csv, line 17: ValueError: no number`. What treadle itself raises says all in its
    message."""
    if place and not message.startswith(place):
        return f"{place}: {error_text(error, message)}"
    if not error or (message and error.startswith("treadle.")):
        return message
    return f"{error}: {message}" if message else error
