package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// emulatedMinors is how many minor versions back a control plane can emulate.
const emulatedMinors = 3

// emulation returns the version that the control plane of an API server is to emulate, as in 1.34; "" if it has that
// version, or can't emulate it.
func emulation(ctx context.Context, apiServer, wanted string) (string, error) {
	if wanted == "" {
		return "", nil
	}
	asked, err := version.ParseGeneric(wanted)
	if err != nil {
		return "", fmt.Errorf("%w: Kubernetes %q is not a version such as 1.34", ErrOptions, wanted)
	}
	out, err := exec.CommandContext(ctx, apiServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", apiServer, err)
	}
	has, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "))
	if err != nil {
		return "", fmt.Errorf("the version of %s: %w", apiServer, err)
	}
	if asked.Major() != has.Major() || asked.Minor() >= has.Minor() || asked.Minor()+emulatedMinors < has.Minor() {
		return "", nil
	}
	return fmt.Sprintf("%d.%d", asked.Major(), asked.Minor()), nil
}
