"""What is done before a release: `make release-check` runs `release.check`."""
