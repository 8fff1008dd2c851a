package core

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// ManyClusterFlags are the flags for several clusters.
type ManyClusterFlags struct {
	contexts []string
	folder   string

	command *cobra.Command
}

// A NamedCluster is one of several clusters, with the flags for a connection to it.
type NamedCluster struct {
	Name  string
	Flags ClusterFlags
}

// everyContext is the value of --contexts for all contexts.
const everyContext = "*"

// AddManyClusterFlags adds the flags for several clusters to a command that has those for one.
func AddManyClusterFlags(command *cobra.Command, f *ManyClusterFlags, one *ClusterFlags) {
	f.command = command
	command.Flags().StringSliceVar(&f.contexts, "contexts", nil,
		"read several clusters: contexts of the kubeconfig, separated by commas, or '*' for all")
	command.Flags().StringVar(&f.folder, "kubeconfig-dir", "",
		"read several clusters: the folder has a kubeconfig for each, whose current context counts")
	_ = command.MarkFlagDirname("kubeconfig-dir")
	_ = command.RegisterFlagCompletionFunc("contexts", func(_ *cobra.Command, _ []string,
		typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var found []cobra.Completion
		for _, name := range one.location.Contexts() {
			if !slices.Contains(strings.Split(before, ","), name) {
				found = append(found, before+name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// AreSet reports whether several clusters are wanted.
func (f *ManyClusterFlags) AreSet() bool {
	return f.command.Flags().Changed("contexts") || f.command.Flags().Changed("kubeconfig-dir")
}

// Clusters returns the clusters, with the other flags of one.
func (f *ManyClusterFlags) Clusters(one ClusterFlags) ([]NamedCluster, error) {
	if err := checkLabel("record-namespace", one.Namespace); err != nil {
		return nil, err
	}
	flags := f.command.Flags()
	for _, pair := range [][]string{{"contexts", "context"}, {"contexts", "kubeconfig-dir"},
		{"kubeconfig-dir", "context"}, {"kubeconfig-dir", "kubeconfig"}} {
		if flags.Changed(pair[0]) && flags.Changed(pair[1]) {
			return nil, Misusef("--%s can't be combined with --%s", pair[0], pair[1])
		}
	}
	if flags.Changed("kubeconfig-dir") {
		return f.inFolder(one)
	}
	location, err := one.location.Read()
	if err == nil {
		one.location = location
	}
	known := one.location.Contexts()
	switch {
	case err != nil:
		return nil, Misuse(one.withFlag(err))
	case len(f.contexts) == 0:
		return nil, Misusef("--contexts: name a context, or '*' for all")
	case len(known) == 0:
		return nil, Misusef("--contexts: the kubeconfig has no context")
	}
	names := slices.Compact(slices.Sorted(slices.Values(f.contexts)))
	if slices.Contains(names, everyContext) {
		names = known
	}
	var clusters []NamedCluster
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, Misusef("--contexts: the kubeconfig has no context %q: it has %s", name,
				printable.Few(known, maxNamedContexts))
		}
		one.location.Context = name
		clusters = append(clusters, NamedCluster{name, one})
	}
	return clusters, nil
}

// maxNamedContexts limits the contexts in an error.
const maxNamedContexts = 10

// inFolder returns a cluster for each file of the folder, except for hidden files, such as those of a mounted Secret.
func (f *ManyClusterFlags) inFolder(one ClusterFlags) ([]NamedCluster, error) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return nil, Misusef("--kubeconfig-dir: %w", err)
	}
	var clusters []NamedCluster
	files := map[string]string{}
	for _, entry := range entries {
		path, name := filepath.Join(f.folder, entry.Name()), entry.Name()
		if info, err := os.Stat(path); strings.HasPrefix(name, ".") || err == nil && info.IsDir() {
			continue
		}
		if extension := filepath.Ext(name); slices.Contains(kubeconfigExtensions, extension) {
			name = strings.TrimSuffix(name, extension)
		}
		if files[name] != "" {
			return nil, Misusef("--kubeconfig-dir: %s and %s have the same name: rename one", files[name], path)
		}
		files[name], one.location.File = path, path
		clusters = append(clusters, NamedCluster{name, one})
	}
	if len(clusters) == 0 {
		return nil, Misusef("--kubeconfig-dir: %s has no file", f.folder)
	}
	return clusters, nil
}

// kubeconfigExtensions are not a part of a cluster's name.
var kubeconfigExtensions = []string{".yaml", ".yml", ".json", ".conf", ".config", ".kubeconfig"}
