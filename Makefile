# The two commands of the README, each complete on a fresh Debian or Ubuntu machine.
.PHONY: demo test build clean

# Builds the release, casts a real model to FP8 and back, and verifies every op on this machine.
demo:
	@scripts/demo.sh

# Builds and runs every test; ends with "N passed, N failed".
test:
	@scripts/test.sh

build:
	@scripts/setup.sh build
	@cmake --preset release -DTILEKERNELS_BUILD_TESTS=OFF -DTILEKERNELS_BUILD_BENCH=OFF
	@cmake --build --preset release

clean:
	rm -rf build .venv demo
