"""The benchmarks, a file each. A file put here is found by its @benchmark."""
