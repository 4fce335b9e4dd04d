"""What tests and tools need besides the package itself: stand-ins for files that cannot be shipped."""
