"""The version, here alone."""

VERSION = "0.1.0"
