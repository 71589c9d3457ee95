"""Every error that Hookline raises on purpose, drawn as one tree.

HooklineError                    said to a person as it stands, without a traceback
├── ConfigurationError           a setting, a file or a machine is not as it must be: mend it and start again
│   ├── BrokerUnavailable        no broker could be reached or started
│   ├── TopologyDrift            the cluster's topics are not what the topology declares
│   └── IdentityInUse            another process holds this worker's state folder
├── MalformedRecord              a record that no reader can take: it goes to the DLQ with this reason
└── LogError                     the log layer cannot go on as it is
    ├── Aborted                  a transaction failed for a passing reason: write the same outcomes again
    ├── Unwritable               the broker will never take a record of this transaction: find it, dead-letter it
    └── Fatal                    this process must end, and the log is the truth for the next one
        └── PositionLost         where to read on from is unknown or deleted: a person decides
"""


class HooklineError(Exception):
    """Base of all: its message says what was being done, to what, and what to do next."""


class ConfigurationError(HooklineError):
    """A setting, a file or a machine is not as it must be."""


class BrokerUnavailable(ConfigurationError):
    """No broker could be reached or started."""


class TopologyDrift(ConfigurationError):
    """The cluster's topics are not what the topology declares."""


class IdentityInUse(ConfigurationError):
    """Another process holds this worker's state folder."""


class MalformedRecord(HooklineError):
    """A record that no reader can take."""


class LogError(HooklineError):
    """The log layer cannot go on as it is."""


class Aborted(LogError):
    """A transaction failed for a passing reason."""


class Unwritable(LogError):
    """The broker will never take a record of this transaction."""


class Fatal(LogError):
    """This process must end."""


class PositionLost(Fatal):
    """Where to read on from is unknown or deleted."""
