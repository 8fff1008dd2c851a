package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// maxCached is the maximum number of images on disk: the current release, the previous one, and the requested one.
const maxCached = 3

// releases reads releases. It caches the images that it has pulled in a folder, by digest.
type releases struct {
	cluster   *cluster.Cluster
	namespace string // namespace of the record
	folder    string
	source    source.Options
	payload   payload.Options
}

func newReleases(c *cluster.Cluster, o Options) *releases {
	return &releases{cluster: c, namespace: o.Namespace, folder: o.CacheDir, source: o.Source, payload: payload.Options{
		Name: payload.DefaultName, Filter: payload.Filter{Profile: o.Profile, Exclude: o.Exclude},
	}}
}

// keep notes the use of an image: prune removes the images that were used longest ago.
func (r *releases) keep(image string) {
	now := time.Now()
	_ = os.Chtimes(r.cached(image), now, now) // it may not be cached
}

// cached returns the folder of an image in the cache.
func (r *releases) cached(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return filepath.Join(r.folder, strings.ReplaceAll(digest, ":", "-"))
}

// open opens the source of a target.
func (r *releases) open(ctx context.Context, t *target) (*source.Release, error) {
	image := t.Image
	if !isByDigest(image) { // the operator's own folder: a ClusterVersion can't request one
		return source.Open(ctx, image, r.source)
	}
	_, digest, _ := strings.Cut(image, "@")
	cached := r.cached(image)
	if r.folder != "" {
		if _, err := os.Stat(cached); err == nil {
			r.keep(image)
			return &source.Release{FS: os.DirFS(cached), Kind: source.Image, Image: image, Digest: digest}, nil
		}
	}
	pulled, err := r.pullOrCopy(ctx, t, digest)
	if err == nil && pulled.Kind == source.Image && r.folder != "" {
		if err := r.cache(pulled.FS, cached); err != nil { // the next attempt pulls it again
			ctrl.LoggerFrom(ctx).Info("release not cached on disk", "reason", err.Error())
		}
	}
	return pulled, err
}

// pullPatience limits the pull of an image if the cluster has a copy of its files.
const pullPatience = 20 * time.Second

// pullOrCopy pulls an image. If it can't pull the image of the release that was begun last, it reads the copy of its
// files on the cluster: an operator keeps a release in place without a registry. Other images must be pulled.
//
// The status of the ClusterVersion must name the copy. An account that may only write ConfigMaps and Secrets in the
// namespace of the record can forge both a copy and the entry of the record that names it.
func (r *releases) pullOrCopy(ctx context.Context, t *target, digest string) (*source.Release, error) {
	image := t.Image
	copied := r.copyOf(ctx, image)
	if copied == "" {
		return r.pull(ctx, image)
	}
	limited, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	pulled, unpulled := r.pull(limited, image)
	if unpulled == nil || ctx.Err() != nil {
		return pulled, unpulled
	}
	if copied != t.accepted {
		return nil, fmt.Errorf("%w; its copy on the cluster is not applied, since it is not the one that was "+
			"accepted: the record has files %s, and status.versionHash of the ClusterVersion is %q",
			unpulled, copied, t.accepted)
	}
	store := files.Store{Cluster: r.cluster, Namespace: r.namespace, Release: r.payload.Name}
	unpacked, err := store.Read(ctx, copied)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; its copy on the cluster: %w", unpulled, err)
	case unpacked.Files == nil:
		return nil, unpulled
	}
	ctrl.LoggerFrom(ctx).Info("release read from its copy on the cluster, since its image can't be pulled", "image",
		image, "reason", unpulled.Error())
	return &source.Release{FS: unpacked.Files, Kind: source.Applied, Image: image, Digest: digest}, nil
}

// copyOf returns the digest of the copy of the files of the release that was begun last, if it has this image;
// otherwise "".
func (r *releases) copyOf(ctx context.Context, image string) string {
	known, _, err := record.NewStore(r.cluster.Client, r.namespace, r.payload.Name).Load(ctx)
	if err != nil {
		return ""
	}
	newest := known.Newest()
	if newest == nil || newest.Source != image || newest.Files == nil {
		return ""
	}
	return newest.Files.Digest
}

// cache writes all files of an image to a folder, or none.
func (r *releases) cache(files fs.FS, folder string) error {
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(r.folder, ".pulled-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := os.CopyFS(unfinished, files); err != nil {
		return err
	}
	if err := syncFiles(unfinished); err != nil { // else a node that loses power may leave empty files under the name
		return err
	}
	if err := os.Rename(unfinished, folder); err != nil {
		return err
	}
	return r.prune()
}

// syncFiles writes the files of a folder to the disk.
func syncFiles(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
}

// prune removes the images that were used longest ago, and incomplete ones that a crash has left behind.
func (r *releases) prune() error {
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !strings.HasPrefix(entry.Name(), ".") {
			used[entry.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return used[b.Name()].Compare(used[a.Name()]) })
	for _, entry := range entries[min(maxCached, len(entries)):] {
		if err := os.RemoveAll(filepath.Join(r.folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// pack packs the files of an open release for their copy on the cluster.
func pack(opened *source.Release, read *payload.Payload) (*files.Packed, error) {
	values, err := loader.Values(read)
	if err != nil {
		return nil, err
	}
	return files.Pack(opened.FS, read.FileNames(), values)
}

// load reads the manifests of an open release. It leaves out those that a newer operator may be able to read: the new
// release must be able to replace this operator by the one that reads them all.
func (r *releases) load(ctx context.Context, opened *source.Release, t *target,
	before *payload.Payload) (*payload.Payload, unreadParts, error) {
	options := loader.Options{Source: r.source, Payload: r.payload, Before: before}
	options.Payload.ReleaseImage = opened.Image
	options.Payload.Filter.Overrides, options.Payload.Injection = t.Overrides, t.Injection
	options.Payload.Filter.FeatureSet, options.Payload.Filter.FeatureGates = t.Features.Set, t.Features.Gates
	if t.Capabilities != nil {
		capabilities, err := capabilitiesOf(t)
		if err != nil {
			err = &reason.Error{Reason: "InvalidClusterVersion", Message: "spec.capabilities", Err: err}
			return nil, unreadParts{}, err
		}
		options.Payload.Filter.Capabilities = capabilities
	}
	options.Payload.LeaveOutNewer = true
	release, problems, err := loader.ParseOpened(ctx, opened, options)
	if err != nil {
		return nil, unreadParts{}, err
	}
	enabled, err := r.enabledByObjects(ctx, release)
	if err == nil && len(enabled) > 0 {
		options.Payload.Filter.Capabilities = release.Filter.WithCapabilities(enabled).Capabilities
		release, problems, err = loader.ParseOpened(ctx, opened, options)
	}
	if err != nil {
		return nil, unreadParts{}, err
	}
	unread := unreadOf(opened.FS, problems)
	if len(release.Manifests) > 0 { // otherwise the release can't bring another operator
		problems = slices.DeleteFunc(problems, func(p payload.Problem) bool { return p.IsNewer })
	}
	if err := payload.Refuse(problems); err != nil {
		return nil, unread, &reason.Error{Reason: payload.Integrity, Err: err}
	}
	return release, unread, nil
}

// enabledByObjects returns the capabilities that a release must enable because it has applied objects of theirs, before
// an update that is not complete: an operator may have left out the manifests of these objects from the update.
func (r *releases) enabledByObjects(ctx context.Context,
	read *payload.Payload) ([]configv1.ClusterVersionCapability, error) {
	var excluded []schema.GroupKind
	for _, exclusion := range read.Excluded {
		if exclusion.Filter == payload.ByCapabilities {
			excluded = append(excluded, exclusion.Manifest.ID().GroupKind())
		}
	}
	if len(excluded) == 0 {
		return nil, nil
	}
	known, _, err := record.NewStore(r.cluster.Client, r.namespace, r.payload.Name).Load(ctx)
	if err != nil || known.Newest() == nil || known.Newest().State == record.Completed {
		return nil, err
	}
	live, err := inventory.TakeRelease(ctx, r.cluster, read.Name, excluded)
	if err != nil {
		return nil, err
	}
	for _, kind := range live.UnlistedKinds() {
		if known.Newest().HasLeftOut() { // otherwise the release may mend what serves the kind
			return nil, fmt.Errorf("list the applied objects of kind %s: %w", kind, live.ListError(kind))
		}
	}
	return payload.EnabledByObjects(read, func(id kinds.ID) bool {
		if resource, err := r.cluster.FindKind(ctx, id.GroupKind()); err == nil {
			id = resource.Scoped(id)
		}
		head, isApplied := live.Find(id)
		return isApplied && !head.Terminating
	}), nil
}

// capabilitiesOf returns the capabilities that a ClusterVersion enables. An enabled capability is never disabled.
func capabilitiesOf(t *target) (*configv1.ClusterVersionCapabilitiesStatus, error) {
	baseline := cmp.Or(t.Capabilities.BaselineCapabilitySet, configv1.ClusterVersionCapabilitySetCurrent)
	names := []string{string(baseline)}
	for _, name := range slices.Concat(t.Capabilities.AdditionalEnabledCapabilities, t.Enabled) {
		if !slices.Contains(names, string(name)) {
			names = append(names, string(name))
		}
	}
	return payload.ParseCapabilities(strings.Join(names, ","))
}

// knownOf returns the capabilities that a ClusterVersion can name: the API server refuses a status with others.
func knownOf(all configv1.ClusterVersionCapabilitiesStatus) configv1.ClusterVersionCapabilitiesStatus {
	isUnknown := func(c configv1.ClusterVersionCapability) bool {
		return !slices.Contains(configv1.KnownClusterVersionCapabilities, c)
	}
	return configv1.ClusterVersionCapabilitiesStatus{
		EnabledCapabilities: slices.DeleteFunc(slices.Clone(all.EnabledCapabilities), isUnknown),
		KnownCapabilities:   slices.DeleteFunc(slices.Clone(all.KnownCapabilities), isUnknown),
	}
}

// implicitOf returns the enabled capabilities of a release that its target does not enable.
func implicitOf(t *target, p *payload.Payload) []configv1.ClusterVersionCapability {
	if t.Capabilities == nil {
		return nil
	}
	requested, err := capabilitiesOf(&target{Capabilities: t.Capabilities})
	if err != nil {
		return nil // this can't happen: the release was loaded with them
	}
	return slices.DeleteFunc(slices.Clone(p.Filter.Capabilities.EnabledCapabilities),
		func(c configv1.ClusterVersionCapability) bool {
			return slices.Contains(requested.EnabledCapabilities, c)
		})
}

// architecture is the one of the images that the operator pulls.
var architecture = runtime.GOARCH

// describe returns a release with the URL and the channels of its metadata.
func describe(t *target, p *payload.Payload) configv1.Release {
	release := configv1.Release{Version: p.Version, Image: t.Image}
	if url, isText := p.Metadata.Metadata["url"].(string); isText {
		release.URL = configv1.URL(url)
	}
	if channels, isText := p.Metadata.Metadata["io.openshift.upgrades.graph.release.channels"].(string); isText &&
		channels != "" {
		release.Channels = strings.Split(channels, ",")
	}
	return release
}
