package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// SourceHelp is the help on SOURCE, the same for every verb.
const SourceHelp = `SOURCE is a folder of manifests, a single file, standard input ("-"), a folder with manifests/
and release-manifests/ as the cluster-version operator has it, a tar archive of one (plain, gzip, zstd),
an OCI image layout on disk (LAYOUT, LAYOUT:tag or LAYOUT@digest), an image in
a registry, by tag or digest, with the credentials of docker and podman, or a version
that was applied to the cluster: NAME@REVISION or NAME@VERSION, as "runlevel history" lists
them, or NAME@ for the last one. Of that one, flags replace the filters that it was applied with.

A folder, archive or image may have its name, version, profile and more in ` + payload.SettingsFile + `, where flags are
not set: see "runlevel help environments".`

// ReleaseFlags are the flags for reading a release, and for its filters.
type ReleaseFlags struct {
	source     source.Options
	Name       string
	Version    string
	Image      string
	ImagesFrom string
	Images     []string // items have the format NAME=IMAGE

	only         payload.Filter // filter without Capabilities
	Capabilities string
	UpdatingFrom string
	unmanaged    []string
	namespace    string // namespace of objects without one

	cluster *ClusterFlags // cluster of the applied versions

	KeepText bool             // keeps the text, for callers that need lines later
	Before   *payload.Payload // the previous release, if the caller has read it already; nil otherwise
}

// NoValues is the hint for users who look for the values of other tools.
const NoValues = `manifests have no values: variants for environments are chosen by --profile (see "runlevel help environments")`

// The help on --insecure and --image-mirror.
const (
	InsecureUsage = "allow registries with plain http, or with a certificate of an unknown authority"
	MirrorUsage   = "read images of a registry or repository from another one first, by digest; may be repeated"
)

// AddReleaseFlags adds the flags for reading a release, and for its filters. A version that was applied is read from
// the cluster of other flags.
func AddReleaseFlags(command *cobra.Command, f *ReleaseFlags, cluster *ClusterFlags) {
	f.cluster = cluster
	flags := command.Flags()
	flags.StringVar(&f.only.Profile, "profile", "",
		"only manifests that are included in this cluster profile, such as self-managed-high-availability")
	flags.StringVar(&f.only.FeatureSet, "feature-set", "",
		`only manifests of this feature set (default: all, or "Default" with --profile)`)
	flags.StringSliceVar(&f.only.FeatureGates, "feature-gates", nil,
		"feature gates that are on (default: all manifests, or none on with --profile)")
	flags.StringVar(&f.Capabilities, "capabilities", "",
		"capabilities that are on: a baseline such as vCurrent or None, and names, as in None,Console")
	flags.StringVar(&f.UpdatingFrom, "updating-from", "",
		"the SOURCE of the previous release: its capabilities stay enabled, as in an update")
	flags.Uint64Var(&f.only.MajorVersion, "major-version", 0, "the cluster's major version (default: the release's)")
	flags.Var((*singleText)(&f.only.Exclude), "exclude",
		"leave out manifests with the annotation exclude.release.openshift.io/NAME")
	flags.StringArrayVar(&f.unmanaged, "unmanaged", nil,
		"leave out this object, as KIND[.GROUP]/[NAMESPACE/]NAME; group and namespace may be left out if only one "+
			"object fits; may be repeated")

	flags.StringVar(&f.Name, "name", "",
		"the name of the release, which must differ from others on the same cluster (default: default, for a release "+
			"with release-metadata)")
	flags.StringVar(&f.Version, "release-version", "", "the version of a release without release-metadata")
	flags.StringVar(&f.Image, "release-image", "",
		"the image of the release, for templates (default: SOURCE, if it is an image)")
	flags.StringVar(&f.ImagesFrom, "images-from", "",
		"the image-references file of a release, if SOURCE is a component's folder: its images replace the "+
			"placeholders that the component's own image-references names")
	flags.StringArrayVar(&f.Images, "image", nil,
		"the image to put in the place of the component's placeholder of this name, as NAME=IMAGE, also instead of "+
			"that of --images-from; may be repeated")
	AddImageFlags(command, &f.source)
	for name, values := range map[string][]string{"profile": loader.Profiles(), "feature-set": payload.FeatureSets()} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = command.RegisterFlagCompletionFunc("capabilities", CompleteList(payload.CapabilityBaselines()))
}

// AddImageFlags adds the flags for reading images.
func AddImageFlags(command *cobra.Command, o *source.Options) {
	command.Flags().StringVar(&o.Platform, "platform", "",
		"which image to take of several, as in linux/arm64 (default: linux on this architecture)")
	command.Flags().BoolVar(&o.Insecure, "insecure", false, InsecureUsage)
	command.Flags().Var(&o.Mirrors, "image-mirror", MirrorUsage)
	_ = command.RegisterFlagCompletionFunc("platform", cobra.FixedCompletions(
		[]string{"linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"}, cobra.ShellCompDirectiveNoFileComp))
}

// AddImageFlags adds only the flags for reading images.
func (f *ReleaseFlags) AddImageFlags(command *cobra.Command) { AddImageFlags(command, &f.source) }

// ReadFrom makes a command without these flags read versions that were applied from a cluster.
func (f *ReleaseFlags) ReadFrom(cluster *ClusterFlags) { f.cluster = cluster }

// AddKubectlFlags adds flags that kubectl has, too, to a command whose only argument is a SOURCE: -f SOURCE, and the
// namespace of objects without one.
func AddKubectlFlags(command *cobra.Command, f *ReleaseFlags) {
	var file string
	AddNamespaceFlag(command, f)
	command.Flags().StringVarP(&file, "filename", "f", "", "release to apply; same as the SOURCE argument")
	check, run := command.Args, command.RunE
	command.Args = func(command *cobra.Command, args []string) error {
		switch {
		case file == "":
			return check(command, args)
		case len(args) > 0:
			return fmt.Errorf("SOURCE is named twice: %q and -f %q%s", args[0], file, hintOnValues(file))
		default:
			return check(command, []string{file})
		}
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if file != "" {
			args = []string{file}
		}
		return run(command, args)
	}
}

// hintOnValues returns a hint for users who pass the values of a chart with -f.
func hintOnValues(file string) string {
	if strings.Contains(strings.ToLower(filepath.Base(file)), "values") {
		return "; " + NoValues
	}
	return ""
}

// AddNamespaceFlag adds the flag with the namespace of objects without one.
func AddNamespaceFlag(command *cobra.Command, f *ReleaseFlags) {
	command.Flags().StringVarP(&f.namespace, "namespace", "n", "", "the namespace of objects without one")
}

// TolerateDuplicates turns problems with duplicate objects into warnings.
func TolerateDuplicates(problems []payload.Problem) []payload.Problem {
	problems = slices.Clone(problems)
	for i := range problems {
		if problems[i].Cause == payload.Duplicate {
			problems[i].Cause = payload.Suspicious
		}
	}
	return problems
}

// Accept returns an error for a release with problems, or one that flags do not fit, and prints
// warnings.
func (f *ReleaseFlags) Accept(ref string, release *payload.Payload, problems []payload.Problem,
	progress io.Writer) error {
	if err := payload.Refuse(problems); err != nil {
		return ProblemsError(ref, err)
	}
	Warn(progress, ProblemLines(problems))
	var placed []string
	for _, m := range release.Placed {
		placed = append(placed, m.GroupVersionKind().Kind+" "+m.ID().Name)
	}
	if len(placed) > 0 {
		fmt.Fprintf(progress, "namespace %s is set in %s: %s\n", release.Options().Namespace,
			printable.Count(len(placed), "object"), printable.Few(placed, maxPlaced))
	}
	return f.CheckFilters(release)
}

// maxPlaced limits the named objects that have no namespace of their own.
const maxPlaced = 20

// ProblemsError returns an error with the release and its problems, folded by cause.
func ProblemsError(ref string, err error) error {
	var problems payload.Problems
	if errors.As(err, &problems) && len(problems) > 1 {
		return Misusef("%s has %d problems:\n%s", ref, len(problems), strings.Join(ProblemLines(problems), "\n"))
	}
	return Misusef("%s: %w", ref, err)
}

// ProblemLines returns a line for each problem, or for each cause of many.
func ProblemLines(problems []payload.Problem) []string {
	cause := func(p payload.Problem) string {
		message := p.Message
		if p.Cause == payload.Duplicate { // the message names the other manifest, and then the flag that chooses
			message, _, _ = strings.Cut(message[strings.LastIndex(message, ": ")+1:], "(")
		}
		return string(p.Cause) + payload.WithoutLines(strings.ReplaceAll(message, p.Object, ""))
	}
	var lines []string
	for _, fold := range Fold(problems, cause) {
		line := fold.First.String()
		if more := len(fold.Others); more > 0 {
			line += fmt.Sprintf(" (and %d more like it)", more)
		}
		lines = append(lines, line)
	}
	return lines
}

// Warn prints warnings.
func Warn[T any](out io.Writer, warnings []T) {
	for _, warning := range warnings {
		fmt.Fprintln(out, "warning:", warning)
	}
}

// ReadError makes the error of a release that can't be read a misuse, unless the command was interrupted.
func ReadError(ctx context.Context, err error) error {
	var problems *loader.RefusedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &problems):
		return ProblemsError(problems.Source, problems.Problems)
	default:
		return Misuse(err)
	}
}

// checkLabel returns an error if the value of a flag is not a valid name.
func checkLabel(flag, value string) error {
	if value == "" || len(validation.IsDNS1123Label(value)) == 0 {
		return nil
	}
	return Misusef("--%s: %q can't be a name: use up to 63 lower-case letters, digits and dashes, with a letter or "+
		"digit at both ends", flag, value)
}

// Options returns the options of the flags, or an error for invalid values, before anything is pulled.
func (f *ReleaseFlags) Options(progress io.Writer) (loader.Options, error) {
	options := loader.Options{
		Source: f.source,
		Payload: payload.Options{
			Name:         f.Name,
			Version:      f.Version,
			ReleaseImage: f.Image,
			Namespace:    f.namespace,
			KeepText:     f.KeepText,
		},
		Before: f.Before, UpdatingFrom: f.UpdatingFrom,
	}
	options.Source.Progress, options.Source.Input = progress, os.Stdin
	if f.cluster != nil {
		options.Source.Versions = f.cluster
	}
	if err := errors.Join(checkLabel("name", f.Name), checkLabel("namespace", f.namespace)); err != nil {
		return options, err
	}
	if err := CheckVersion("release-version", f.Version); err != nil {
		return options, err
	}
	var err error
	if options.Payload.Filter, err = f.filter(); err != nil {
		return options, Misuse(err)
	}
	for _, object := range f.unmanaged {
		selector, err := loader.ParseSelector(object)
		if err != nil {
			return options, Misusef("--unmanaged: %w", err)
		}
		options.Unmanaged = append(options.Unmanaged, selector)
	}
	options.Payload.Release, err = f.references()
	return options, err
}

// references returns the images that replace the placeholders of a component; nil if no such flag is set.
func (f *ReleaseFlags) references() (*payload.References, error) {
	references := &payload.References{Images: map[string]string{}}
	switch {
	case f.ImagesFrom != "":
		text, err := os.ReadFile(f.ImagesFrom)
		if err != nil {
			return nil, Misuse(err)
		}
		if references, err = payload.ParseReferences(text); err != nil {
			return nil, Misusef("%s: %w", f.ImagesFrom, err)
		}
	case len(f.Images) == 0:
		return nil, nil
	}
	for _, given := range f.Images {
		name, image, _ := strings.Cut(given, "=")
		if name == "" || !payload.IsPullSpec(image) {
			return nil, Misusef("--image %s: write NAME=IMAGE, with a name of the component's %s", given,
				payload.ImagesFile)
		}
		references.Images[name] = image
	}
	return references, nil
}

// CheckFilters refuses filters that match no manifest of the releases. It skips nil releases.
func (f *ReleaseFlags) CheckFilters(releases ...*payload.Payload) error {
	options, err := f.Options(nil)
	if err != nil {
		return err
	}
	if err := options.Check(releases...); err != nil {
		return Misusef("--%w", err)
	}
	return nil
}

// checkNotEmpty returns an error if the filters leave out every manifest of a release.
func checkNotEmpty(release *payload.Payload) error {
	if len(release.Manifests)+len(release.Tests) > 0 || len(release.Excluded) == 0 {
		return nil
	}
	return Misusef(`the filters leave nothing of the release: "runlevel render --explain" shows why`)
}

// WarnIfEmpty prints the error of checkNotEmpty, for verbs that write nothing to a cluster.
func WarnIfEmpty(out io.Writer, release *payload.Payload) {
	if err := checkNotEmpty(release); err != nil {
		Warn(out, []error{err})
	}
}

// CheckVersion checks the version in a flag, if it is set.
func CheckVersion(flag, value string) error {
	if value == "" || payload.IsVersion(value) {
		return nil
	}
	return Misusef("--%s: %q is not a semantic version such as 1.2.3", flag, value)
}

// filter returns the filter of the flags.
func (f *ReleaseFlags) filter() (payload.Filter, error) {
	filter := f.only
	if f.UpdatingFrom != "" && f.Capabilities == "" {
		return filter,
			errors.New("--updating-from needs --capabilities: without them all capabilities are enabled")
	}
	if f.Capabilities != "" {
		capabilities, err := payload.ParseCapabilities(f.Capabilities)
		if err != nil {
			return filter, fmt.Errorf("--capabilities: %w", err)
		}
		filter.Capabilities = capabilities
	}
	return filter, nil
}

// LoadAs reads a release. Its errors name the release as "the old release" or "the new release".
func (f *ReleaseFlags) LoadAs(ctx context.Context, what, ref string,
	progress io.Writer) (*payload.Payload, []payload.Problem, error) {
	release, problems, err := f.Parse(ctx, ref, progress)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := payload.Refuse(problems); err != nil {
		return nil, nil, ProblemsError(what+" "+ref, err)
	}
	return release, problems, nil
}
