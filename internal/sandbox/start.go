package sandbox

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// ErrOptions marks an error in the options that Start was given, including the files that
// they name. Nothing was started.
var ErrOptions = errors.New("wrong options")

// Prepare builds the programs ahead of time, and checks the options.
func Prepare(ctx context.Context, o Options) error {
	_, err := prepareStart(ctx, o)
	return err
}

// A preparation has what every attempt of a start needs.
type preparation struct {
	crds     []*unstructured.Unstructured
	programs map[string]string // of the control plane
	node     realnode.Programs
	emulated string // version of Kubernetes; "" for that of the programs
}

func prepareStart(ctx context.Context, o Options) (found preparation, err error) {
	if err := o.validate(); err != nil {
		return found, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if found.crds, err = readCRDs(o.CRDs); err != nil {
		return found, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.RealNodes > 0 {
		if found.node, err = realnode.FindPrograms(); err != nil {
			return found, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if err := found.node.Locate(ctx, o.Progress); err != nil {
			return found, err
		}
	}
	if found.programs, err = binaries.Locate(ctx, o.components(), o.Progress); err != nil {
		return found, err
	}
	found.emulated, err = emulation(ctx, found.programs[APIServer], o.Kubernetes)
	return found, err
}
