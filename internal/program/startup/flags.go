package startup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// setFromFile sets the flags of a command from a file, except those set on the command line. A missing file sets none:
// its ConfigMap may be created at any time.
func setFromFile(command *cobra.Command, path string) error {
	flags := command.Flags()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return fmt.Errorf("--config: %s: write a line for each flag, as NAME: VALUE: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		found := flags.Lookup(name)
		if found == nil || name == "config" {
			return fmt.Errorf("--config: %s: there is no flag %q: see %s --help", path, name, command.CommandPath())
		}
		if found.Changed {
			klog.InfoS("the command line counts for more than the file", "flag", name, "file", path, "value", found.Value)
			continue
		}
		if err := flags.Set(name, fmt.Sprint(values[name])); err != nil {
			return fmt.Errorf("--config: %s: %s: %w", path, name, err)
		}
	}
	return nil
}

// logFlags logs the value of each flag, from any source. None is secret.
func logFlags(flags *pflag.FlagSet) {
	var values []any
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			values = append(values, f.Name, f.Value.String())
		}
	})
	klog.InfoS("starting with these flags", values...)
}
