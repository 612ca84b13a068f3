"""Command lines with options between their positional arguments, as parse_intermixed_args() of Python 3.7 takes them."""


def parse_intermixed(given, parser, arguments):
    """`given` has the options, without help; `parser` has it as a parent, and the positional arguments."""
    given.error = parser.error
    options, rest = given.parse_known_args(arguments)
    return parser.parse_args(rest, options)
