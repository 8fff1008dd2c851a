package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// emulatedMinors is the number of earlier minor versions that a control plane can emulate.
const emulatedMinors = 3

// emulation returns the version, such as 1.34, that a control plane with this API server must emulate, or "" if it has
// that version or can't emulate it.
func emulation(ctx context.Context, apiServer, wanted string) (string, error) {
	if wanted == "" {
		return "", nil
	}
	requested, err := version.ParseGeneric(wanted)
	if err != nil {
		return "", fmt.Errorf("%w: Kubernetes %q is not a version such as 1.34", ErrOptions, wanted)
	}
	out, err := exec.CommandContext(ctx, apiServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", apiServer, err)
	}
	actual, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "))
	if err != nil {
		return "", fmt.Errorf("parse the version of %s: %w", apiServer, err)
	}
	behind := int(actual.Minor()) - int(requested.Minor())
	if requested.Major() != actual.Major() || behind < 1 || behind > emulatedMinors {
		return "", nil
	}
	return fmt.Sprintf("%d.%d", requested.Major(), requested.Minor()), nil
}
