package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const verifyHelp = `Report who would accept the image of a release, by its signatures. IMAGE is an image in a
registry, an OCI image layout, or an archive of one.

The keys are those of --key and --openpgp-key, or those of a release that demands signatures of the
next one (--policy). The operator of runlevel accepts IMAGE if each of these files has a key that has
signed it, in any format. Other consumers are configured with one key: there is a line for each.

OpenPGP messages are read from --openpgp-from, and from the stores of the policy.

Exit codes: 0; 1 if the operator refuses the image, or with --consumer, if one of these consumers
does; 2 if a key can't be read.`

// verifyFlags are the flags of runlevel release verify.
type verifyFlags struct {
	keys        []string
	openpgpKeys []string
	openpgpFrom []string
	policy      string
	consumers   []string
	source      source.Options
	format      core.Output
}

// VerifyReport is the output of runlevel release verify.
type VerifyReport struct {
	Image     string              `json:"image"`
	Digest    string              `json:"digest"`
	Consumers []signature.Verdict `json:"consumers"`
}

// newVerify returns the verb verify.
func newVerify(streams core.Streams) *cobra.Command {
	var f verifyFlags
	command := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Report who would accept the image of a release, by its signatures",
		Long:  verifyHelp,
		Example: `  runlevel release verify registry.example/shop:1.4.0 --key cosign.pub

  # Would clusters with 1.3.2 update to it?
  runlevel release verify registry.example/shop:1.4.0 --policy registry.example/shop@sha256:…

  # Would nodes run it?
  runlevel release verify registry.example/shop:1.4.0 --key cosign.pub --consumer cri-o`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompletePaths(1, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML)
	flags := command.Flags()
	flags.StringArrayVar(&f.keys, "key", nil,
		"a `file` with public keys in PEM, of which one must have signed; may be repeated")
	flags.StringArrayVar(&f.openpgpKeys, "openpgp-key", nil,
		"a `file` with OpenPGP public keys, of which one must have signed; may be repeated")
	flags.StringArrayVar(&f.openpgpFrom, "openpgp-from", nil,
		"a `place` with OpenPGP messages: a folder, FILE.yaml, or the URL of a store; may be repeated")
	flags.StringVar(&f.policy, "policy", "", "the SOURCE of the release whose policy IMAGE has to satisfy")
	flags.StringSliceVar(&f.consumers, "consumer", nil, "fail unless these accept the image: "+
		core.Join(signature.Consumers))
	flags.BoolVar(&f.source.Insecure, "insecure", false, core.InsecureUsage)
	flags.Var(&f.source.Mirrors, "image-mirror", core.MirrorUsage)
	return command
}

func (f *verifyFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	for _, consumer := range f.consumers {
		if !slices.Contains(signature.Consumers, signature.Consumer(consumer)) {
			return core.Misusef("--consumer %s: use one of %s", consumer, core.Join(signature.Consumers))
		}
	}
	location, err := oci.Parse(ref, f.source.Insecure)
	if err != nil {
		return core.Misusef("%s: %w", ref, err)
	}
	policy, err := f.readPolicy(ctx)
	if err != nil {
		return core.ReadError(ctx, err)
	}
	mirrors := &source.Repositories{Options: f.source}
	from := signature.Stores{Images: []signature.Images{{
		Name: ref,
		Open: func(ctx context.Context) (store oci.Store, err error) {
			if location.IsRegistry() {
				store, _, err = mirrors.Find(ctx, ref)
				return store, err
			}
			return oci.Open(ctx, location, oci.Options{})
		},
	}}}
	for _, place := range f.openpgpFrom {
		if !strings.Contains(place, "://") {
			from.Files = append(from.Files, place)
		} else if err := policy.AddStore(place); err != nil {
			return core.Misusef("--openpgp-from %s: %w", place, err)
		}
	}
	image, err := f.resolve(ctx, location, from)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	report := VerifyReport{Image: ref, Digest: image.Digest}
	if report.Consumers, err = policy.Judge(ctx, image, from); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	if err := f.format.Print(streams.Out, report, report.print); err != nil {
		return err
	}
	return core.FailIf(f.isRefused(report))
}

// resolve returns the image of a location.
func (f *verifyFlags) resolve(ctx context.Context, location oci.Location, from signature.Stores) (
	image signature.Image, err error) {
	images, err := from.Images[0].Open(ctx)
	if err != nil {
		return image, err
	}
	defer images.Close()
	described, err := images.Resolve(ctx, location.Identifier)
	if err != nil {
		return image, err
	}
	image.Digest = described.Digest.String()
	if location.IsRegistry() {
		if image.Reference, err = name.ParseReference(location.String()); err != nil {
			return image, err
		}
	}
	image.Platforms, err = platformsOf(ctx, images, described)
	return image, err
}

// readPolicy returns the policy of a release, or of the flags with keys.
func (f *verifyFlags) readPolicy(ctx context.Context) (*signature.Policy, error) {
	files := append(slices.Clone(f.keys), f.openpgpKeys...)
	switch {
	case f.policy != "" && len(files) > 0:
		return nil, errors.New("--policy has its own keys: leave out --key and --openpgp-key")
	case f.policy != "":
		read, _, err := loader.Load(ctx, f.policy, loader.Options{Source: f.source})
		if err != nil {
			return nil, err
		}
		policy, err := signature.PolicyOf(read)
		if err == nil && policy == nil {
			err = fmt.Errorf("%s demands no signatures: it has no ConfigMap with the annotation %s", f.policy,
				signature.ConfigAnnotation)
		}
		return policy, err
	case len(files) == 0:
		return nil, errors.New("pass public keys with --key or --openpgp-key, or a release that has some with --policy")
	}
	policy := signature.NewPolicy("--key and --openpgp-key")
	for _, file := range files {
		err := readKey(file, func(text []byte) error { return policy.AddKeys(file, text) })
		if err != nil {
			return nil, err
		}
	}
	return policy, nil
}

// isRefused reports whether a consumer refuses the image that has to accept it.
func (f *verifyFlags) isRefused(report VerifyReport) bool {
	needed := f.consumers
	if len(needed) == 0 {
		needed = []string{string(signature.Operator)}
	}
	found := map[string]bool{}
	for _, verdict := range report.Consumers {
		consumer := string(verdict.Consumer)
		if found[consumer] = true; !verdict.Accepts && slices.Contains(needed, consumer) {
			return true
		}
	}
	return slices.ContainsFunc(needed, func(consumer string) bool { return !found[consumer] })
}

func (r *VerifyReport) print(out io.Writer) error {
	rows := []string{"CONSUMER\tKEY\tACCEPTS\tBECAUSE"}
	for _, verdict := range r.Consumers {
		accepts := map[bool]string{true: "yes", false: "no"}[verdict.Accepts]
		rows = append(rows, strings.Join([]string{
			string(verdict.Consumer), cmp.Or(printable.Line(verdict.Key), "-"), accepts, printable.Line(verdict.Reason),
		}, "\t"))
	}
	return core.PrintLines(out, append([]string{r.Digest}, core.Align(rows)...))
}
