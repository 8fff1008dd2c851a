package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/kubeconfig"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ClusterFlags are the flags for the connection to a cluster and the namespace of records.
type ClusterFlags struct {
	location  kubeconfig.Location
	Namespace string
}

// AddClusterFlags adds the flags for the connection to a cluster and the namespace of records.
func AddClusterFlags(command *cobra.Command, f *ClusterFlags) {
	AddConnectionFlags(command, f)
	command.Flags().StringVar(&f.Namespace, "record-namespace", session.DefaultNamespace,
		"the namespace of the release's record; created if it is missing")
	_ = command.RegisterFlagCompletionFunc("name", f.CompleteReleases) // fails if the command has no such flag
}

// AddReleaseName adds --name for a release on the cluster. The name may also be the only argument.
func AddReleaseName(command *cobra.Command, f *ClusterFlags, name *string, help string) {
	command.Flags().StringVar(name, "name", "", help)
	_ = command.RegisterFlagCompletionFunc("name", f.CompleteReleases)
	command.Use += " [NAME]"
	command.Args = cobra.MaximumNArgs(1)
	command.ValidArgsFunction = f.CompleteRelease
	command.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && *name != "" && *name != args[0] {
			return Misusef("the release is named twice: %q and --name %q", args[0], *name)
		}
		*name = cmp.Or(append(args, *name)...)
		if *name == "" {
			return nil
		}
		if err := lock.CheckRelease(*name); err != nil {
			return Misuse(err)
		}
		return nil
	}
}

// AddConnectionFlags adds the flags for the connection to a cluster.
func AddConnectionFlags(command *cobra.Command, f *ClusterFlags) {
	flags := command.Flags()
	flags.StringVar(&f.location.File, "kubeconfig", "",
		"the kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)")
	flags.StringVar(&f.location.Context, "context", "", "the context of the kubeconfig (default: its current one)")
	flags.StringVar(&f.location.As, "as", "", "the user to impersonate, as in kubectl")
	_ = command.RegisterFlagCompletionFunc("context", f.completeContexts)
}

// AnswerTimeout limits the wait for the version of a cluster: a server may accept connections and never respond, and a
// pipeline does not press Ctrl-C.
const AnswerTimeout = 30 * time.Second

// Connect connects to the cluster, and checks that it responds: later failures have
// other causes.
func (f *ClusterFlags) Connect(ctx context.Context) (*cluster.Cluster, error) {
	if err := checkLabel("record-namespace", f.Namespace); err != nil {
		return nil, err
	}
	config, err := f.location.Config()
	if err != nil {
		return nil, Misuse(f.withFlag(err))
	}
	config.UserAgent = "runlevel/" + ReadVersion().Version
	c, err := cluster.Connect(config)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	err = c.Ping(limited)
	var unreached *url.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return nil, fmt.Errorf("the cluster at %s can't be reached: no response within %s", config.Host, AnswerTimeout)
	case errors.As(err, &unreached):
		return nil, fmt.Errorf("the cluster at %s can't be reached: %w", config.Host, unreached.Err)
	case apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("the cluster at %s does not accept the credentials of the kubeconfig: log in again, "+
			"or choose another --context", config.Host)
	}
	return c, nil
}

// ReadFor reads a release, and connects to the cluster.
func (f *ClusterFlags) ReadFor(ctx context.Context, release *ReleaseFlags, ref string,
	progress io.Writer) (*payload.Payload, *cluster.Cluster, error) {
	read, err := release.Load(ctx, ref, progress)
	if err != nil {
		return nil, nil, err
	}
	c, err := f.ConnectFor(ctx, read)
	return read, c, err
}

// ConnectFor connects to the cluster for an apply of a release, or a preview of one. The release must have a name, and
// a manifest.
func (f *ClusterFlags) ConnectFor(ctx context.Context, release *payload.Payload) (*cluster.Cluster, error) {
	if err := checkNamed(release); err != nil {
		return nil, err
	}
	if err := checkNotEmpty(release); err != nil {
		return nil, err
	}
	return f.Connect(ctx)
}

// withFlag returns the error of a configuration with the flag that resolves it.
func (f *ClusterFlags) withFlag(err error) error {
	file, variable := f.location.File, os.Getenv("KUBECONFIG")
	switch {
	case errors.Is(err, kubeconfig.ErrNoCluster) && file != "":
		return fmt.Errorf("--kubeconfig: there is no cluster in %s", file)
	case errors.Is(err, kubeconfig.ErrNoCluster) && variable != "":
		return fmt.Errorf("$KUBECONFIG is %q, which has no cluster", variable)
	case errors.Is(err, kubeconfig.ErrNoCluster):
		return errors.New("no cluster is configured: name a kubeconfig with --kubeconfig or $KUBECONFIG " +
			"(\"runlevel sandbox up --detach\" starts a cluster for experiments)")
	case errors.Is(err, kubeconfig.ErrNoFile):
		return fmt.Errorf("--kubeconfig: file %s does not exist", file)
	case errors.Is(err, kubeconfig.ErrNoContext):
		return fmt.Errorf("--context: the kubeconfig has no context %q: it has %s", f.location.Context,
			strings.Join(f.location.Contexts(), ", "))
	default:
		return err
	}
}

// DefaultNamespace returns the namespace of the kubeconfig.
func (f *ClusterFlags) DefaultNamespace() string { return f.location.Namespace() }

// CompletionTimeout limits the wait of a shell for the completion of a word.
const CompletionTimeout = 3 * time.Second

// completeFrom completes a word with the results of a function that reads the cluster.
func (f *ClusterFlags) completeFrom(command *cobra.Command,
	find func(context.Context, *cluster.Cluster) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), CompletionTimeout)
	defer cancel()
	c, err := f.Connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return find(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// CompleteMetadata completes a text of the metadata of objects of some kinds, each once.
func (f *ClusterFlags) CompleteMetadata(command *cobra.Command, namespace string,
	text func(*metav1.PartialObjectMetadata) string,
	kinds ...schema.GroupKind) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeFrom(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		var found []cobra.Completion
		for _, kind := range kinds {
			if resource, err := c.FindKind(ctx, kind); err == nil {
				_ = c.EachMetadata(ctx, resource, namespace, metav1.ListOptions{},
					func(m *metav1.PartialObjectMetadata) {
						found = append(found, text(m))
					})
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	})
}

// completeContexts completes the contexts of the kubeconfig.
func (f *ClusterFlags) completeContexts(*cobra.Command, []string,
	string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.location.Contexts(), cobra.ShellCompDirectiveNoFileComp
}

// checkNamed refuses a release without a name: its objects are labelled with it.
func checkNamed(release *payload.Payload) error {
	if release.Name == "" {
		return Misusef("a plain folder has no release name: set it with " +
			"--name, or in its " + payload.SettingsFile)
	}
	return nil
}

// CompleteReleases completes the names of the releases that have a record.
func (f *ClusterFlags) CompleteReleases(command *cobra.Command, _ []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeFrom(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		records, _ := record.List(ctx, c.Client, f.Namespace)
		var names []string
		for _, item := range records {
			names = append(names, item.Release)
		}
		return names
	})
}

// CompleteRelease completes a single argument with the names of the releases that have a record.
func (f *ClusterFlags) CompleteRelease(command *cobra.Command, args []string,
	toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.CompleteReleases(command, args, toComplete)
}

// CompleteRevisions completes the revisions of a release, with their versions.
func (f *ClusterFlags) CompleteRevisions(command *cobra.Command,
	release string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeFrom(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		known, _, err := record.NewStore(c.Client, f.Namespace, release).Load(ctx)
		if err != nil {
			return nil
		}
		var found []cobra.Completion
		for _, entry := range known.History {
			found = append(found, cobra.CompletionWithDesc(strconv.Itoa(entry.Revision),
				strings.TrimSpace(entry.Version+" "+string(entry.State))))
		}
		return found
	})
}
