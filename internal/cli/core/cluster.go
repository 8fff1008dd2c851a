package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ClusterFlags are the flags for the connection to a cluster and the namespace of records.
type ClusterFlags struct {
	kubeconfig string
	context    string
	Namespace  string
}

// AddClusterFlags adds the flags for the connection to a cluster and the namespace of records.
func AddClusterFlags(command *cobra.Command, f *ClusterFlags) {
	AddConnectionFlags(command, f)
	command.Flags().StringVar(&f.Namespace, "record-namespace", session.DefaultNamespace, "the namespace of the record of what was applied; created if it is missing")
	_ = command.RegisterFlagCompletionFunc("name", f.CompleteReleases) // fails if the command has no such flag
}

// AddConnectionFlags adds the flags for the connection to a cluster.
func AddConnectionFlags(command *cobra.Command, f *ClusterFlags) {
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "the context of the kubeconfig (default: its current one)")
	_ = command.RegisterFlagCompletionFunc("context", f.completeContexts)
}

func (f *ClusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// AnswerTimeout is how long a cluster may take to return its version: a server may accept
// connections and never respond, and a pipeline does not press Ctrl-C.
const AnswerTimeout = 30 * time.Second

// Connect connects to the cluster, and checks that it responds: later failures have
// other causes.
func (f *ClusterFlags) Connect(ctx context.Context) (*cluster.Cluster, error) {
	if err := checkLabel("record-namespace", f.Namespace); err != nil {
		return nil, err
	}
	config, err := f.config()
	if err != nil {
		return nil, Misuse(err)
	}
	config.UserAgent = "runlevel/" + ReadVersion().Version
	c, err := cluster.Connect(config)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	err = getVersion(limited, c)
	var unreached *url.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return nil, fmt.Errorf("the cluster at %s can't be reached: no response within %s", config.Host, AnswerTimeout)
	case errors.As(err, &unreached):
		return nil, fmt.Errorf("the cluster at %s can't be reached: %w", config.Host, unreached.Err)
	case apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("the cluster at %s does not accept the credentials of the kubeconfig: log in again, or choose another --context", config.Host)
	}
	return c, nil
}

func (f *ClusterFlags) config() (*rest.Config, error) {
	config, err := f.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && f.kubeconfig != "":
		return nil, fmt.Errorf("--kubeconfig: there is no cluster in %s", f.kubeconfig)
	case clientcmd.IsEmptyConfig(err) && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return nil, fmt.Errorf("$KUBECONFIG is %q, and there is no cluster in it", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no cluster to talk to: name a kubeconfig with --kubeconfig or $KUBECONFIG (\"runlevel sandbox up --detach\" makes a cluster to try things on)")
	case errors.Is(err, os.ErrNotExist) && !f.kubeconfigExists(): // else the kubeconfig refers to a missing file
		return nil, fmt.Errorf("--kubeconfig: there is no file %s", f.kubeconfig)
	case err != nil && f.context != "" && !slices.Contains(f.contexts(), f.context):
		return nil, fmt.Errorf("--context: the kubeconfig has no context %q: it has %s", f.context, strings.Join(f.contexts(), ", "))
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, hidePassword(config)
}

// hidePassword moves a user and password from the server's URL, which is logged and printed, into
// the fields for them. The URL's own take precedence, as in net/http.
func hidePassword(config *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(config)
	var unparsed *url.Error
	switch {
	case errors.As(err, &unparsed):
		return fmt.Errorf("kubeconfig: the server's URL: %w", unparsed.Err) // without the URL
	case err != nil || server.User == nil:
		return err
	}
	config.Username, config.BearerToken, config.BearerTokenFile = server.User.Username(), "", ""
	config.Password, _ = server.User.Password()
	server.User = nil
	config.Host = server.String()
	return nil
}

// DefaultNamespace returns the namespace of the kubeconfig.
func (f *ClusterFlags) DefaultNamespace() string {
	namespace, _, err := f.loader().Namespace()
	if err != nil {
		return "default"
	}
	return namespace
}

// kubeconfigExists reports whether the file of --kubeconfig exists, or the flag is not set.
func (f *ClusterFlags) kubeconfigExists() bool {
	if f.kubeconfig == "" {
		return true
	}
	_, err := os.Stat(f.kubeconfig)
	return err == nil
}

// CompletionTimeout is how long a shell waits for the completion of a word.
const CompletionTimeout = 3 * time.Second

// completing completes a word with the results of a function that reads the cluster.
func (f *ClusterFlags) completing(command *cobra.Command, find func(context.Context, *cluster.Cluster) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), CompletionTimeout)
	defer cancel()
	c, err := f.Connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return find(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// CompleteMetadata completes a text of the metadata of objects of some kinds, each once.
func (f *ClusterFlags) CompleteMetadata(command *cobra.Command, namespace string, text func(*metav1.PartialObjectMetadata) string, kinds ...schema.GroupKind) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completing(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		var found []cobra.Completion
		for _, kind := range kinds {
			if in, err := c.FindKind(ctx, kind); err == nil {
				_ = c.EachMetadata(ctx, in, namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) { found = append(found, text(m)) })
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	})
}

// contexts returns the contexts of the kubeconfig.
func (f *ClusterFlags) contexts() []string {
	raw, err := f.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// completeContexts completes the contexts of the kubeconfig.
func (f *ClusterFlags) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.contexts(), cobra.ShellCompDirectiveNoFileComp
}

// ReadFor reads a release, and connects to the cluster.
func (f *ClusterFlags) ReadFor(ctx context.Context, release *ReleaseFlags, ref string, progress io.Writer) (*payload.Payload, *cluster.Cluster, error) {
	read, err := release.Load(ctx, ref, progress)
	if err != nil {
		return nil, nil, err
	}
	if err := checkNamed(read); err != nil {
		return nil, nil, err
	}
	if err := checkNotEmpty(read); err != nil {
		return nil, nil, err
	}
	c, err := f.Connect(ctx)
	return read, c, err
}

// checkNamed refuses a release without a name: its objects are labelled with it.
func checkNamed(release *payload.Payload) error {
	if release.Name == "" {
		return Misusef("a plain folder has no name, by which the cluster could know its objects: give it one with --name")
	}
	return nil
}

// CompleteReleases completes the names of the releases that have a record.
func (f *ClusterFlags) CompleteReleases(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completing(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		records, _ := record.List(ctx, c.Client, f.Namespace)
		var names []string
		for _, item := range records {
			names = append(names, item.Release)
		}
		return names
	})
}
