"""Every error this package raises on purpose. Each message names the operation, the place and the remedy."""


class RankspaceError(ValueError):
    """A mistake in what the caller gave us. The command line prints it as one line and exits with code 2."""


class GrammarError(RankspaceError):
    """A grammar that breaks a definition: the message names the rule and the label."""


class ShapeError(RankspaceError):
    """Sizes that do not fit: the message names both sizes and where each comes from."""


class FormatError(RankspaceError):
    """A file that cannot be read: the message names the file and the place in it."""


class DecompositionError(RankspaceError):
    """A rank decomposition that does not fit its factor or does not reach the wanted error."""


class DivergenceError(RankspaceError):
    """A sum-product that is infinite, or that the iteration could not bring to the promised accuracy."""


class MissingExtraError(RankspaceError):
    """An optional dependency that is not installed: the message gives the command that installs it."""
