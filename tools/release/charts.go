package main

import (
	"context"

	"github.com/runlevel/runlevel/tools/release/chart"
)

// writeCharts writes the Helm charts.
func writeCharts(_ context.Context, d *draft) error {
	return chart.Write(d.source, d.folder, d.version, d.image)
}
