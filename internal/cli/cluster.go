package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// clusterFlags say which cluster to talk to, and where it keeps records.
type clusterFlags struct {
	kubeconfig string
	context    string
	namespace  string
}

func addClusterFlags(command *cobra.Command, f *clusterFlags) {
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "the context of it (default: its current one)")
	flags.StringVar(&f.namespace, "record-namespace", rollout.DefaultNamespace, "the namespace where the cluster keeps what was applied; made if it is not there")
	_ = command.RegisterFlagCompletionFunc("context", f.completeContexts)
	_ = command.RegisterFlagCompletionFunc("record-namespace", cobra.NoFileCompletions)
}

func (f *clusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// connect makes a connection to the cluster.
func (f *clusterFlags) connect() (*cluster.Cluster, error) {
	config, err := f.config()
	if err != nil {
		return nil, unreadable{err}
	}
	config.UserAgent = "runlevel/" + readVersion().Version
	return cluster.Connect(config)
}

func (f *clusterFlags) config() (*rest.Config, error) {
	config, err := f.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no cluster to talk to: name a kubeconfig with --kubeconfig or $KUBECONFIG (\"runlevel sandbox up --detach\" makes a cluster to try things on)")
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// completeContexts completes the contexts of the kubeconfig.
func (f *clusterFlags) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	raw, err := f.loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
