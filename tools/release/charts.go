package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/runlevel/runlevel/tools/release/chart"
)

// writeCharts writes the Helm charts.
func writeCharts(_ context.Context, d *draft) error {
	for _, name := range []string{chart.Operator, chart.Machines} {
		c := chart.Chart{Name: name, Version: d.version, Image: d.imageByDigest()}
		folder := filepath.Join(d.scratch, "charts", name)
		err := c.Write(d.source, filepath.Join(folder, name))
		if err == nil {
			err = writeArchive(filepath.Join(d.folder, name+"-"+c.Number()+".tgz"), folder, d.time)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
