package manager

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// AddControllers adds the controllers of a program with these options to the manager of a test.
func AddControllers(ctx context.Context, m ctrl.Manager, o Options) error {
	return addControllers(ctx, m, o)
}

// Collect is collect.
var Collect = collect
