# SPDX-License-Identifier: Apache-2.0
"""The plug-in that the package brings is used as a user's tests use it."""

pytest_plugins = ["pytester"]
