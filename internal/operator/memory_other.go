//go:build !linux

package operator

import "runtime/debug"

// releaseMemory returns memory to the system that an apply takes and keeping a release in place does not.
func releaseMemory() { debug.FreeOSMemory() }
