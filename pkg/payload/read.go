package payload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// The folders of a release that have its manifests.
const (
	TemplatesFolder = "manifests"
	ReleaseFolder   = "release-manifests"
)

// IsManifest reports whether a file of a release is read, by its name.
func IsManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) && path.Base(name) != SettingsFile
}

// A reader reads one release.
type reader struct {
	files    fs.FS
	options  Options
	payload  *Payload
	problems []Problem
	unlisted int // warnings of files beyond the limit
	budget   *budget

	imagesPath   string // path of image-references
	images       *substitution
	isBuilt      bool
	rewriting    *Rewriting        // rewriting of a component's text; nil for a release
	placeholders map[string]string // name -> placeholder of a component without a release: not replaced
}

func (r *reader) report(p ...Problem) { r.problems = append(r.problems, p...) }

// reportMislabelled reports a problem with release-metadata or image-references.
func (r *reader) reportMislabelled(file, format string, args ...any) {
	r.report(Problem{File: file, Cause: Mislabelled, Message: fmt.Sprintf(format, args...)})
}

// A manifestFile is a file to read, and the result.
type manifestFile struct {
	File
	place      int // among the files of the release
	isTemplate bool
	options    *Options
	sum        [sha256.Size]byte // checksum of the unchanged text
	isShifted  bool              // rendering has changed how many lines there are
	manifests  []*Manifest
	problems   []Problem
	unlisted   int // warnings beyond the limit
}

// Parse reads what can be read of a release, and returns it with all problems.
// It fails only if the context ends, never for the content of files.
func Parse(ctx context.Context, files fs.FS, options Options) (*Payload, []Problem, error) {
	r := &reader{
		files:   files,
		options: options,
		budget:  newBudget(),
		payload: &Payload{Name: options.Name, Version: options.Version, options: options},
	}
	if err := r.read(ctx); err != nil {
		return nil, nil, err
	}
	return r.payload, r.problems, nil
}

// read reads the release.
func (r *reader) read(ctx context.Context) error {
	found := r.list()
	r.payload.Filter = r.filter()
	r.images = r.substitution()

	if err := r.readAll(ctx, found); err != nil {
		return err
	}
	if exceeded := r.budget.exceededLimit(); exceeded != "" {
		r.report(Problem{
			File:    ".",
			Cause:   Unreadable,
			Message: "its manifests have more than " + exceeded + ", which is the limit: is this one release?",
		})
		return nil
	}
	r.setNamespaces(found)
	r.payload.IsNumbered = !orderByKind(found)
	for _, file := range found {
		if len(file.manifests) == 0 {
			file.UnendedLine = 0
		}
		r.payload.Files = append(r.payload.Files, file.File)
		r.report(file.problems...)
		r.unlisted += file.unlisted
		for _, m := range file.manifests {
			r.include(m)
		}
	}
	if len(found) > 0 && len(r.payload.All())+len(r.problems) == 0 {
		r.report(Problem{
			File:    ".",
			Cause:   Unreadable,
			Message: "all files are empty",
		})
	}
	r.finish(found)
	return nil
}

// finish orders the manifests that were read, and computes the results that depend on all manifests.
func (r *reader) finish(found []*manifestFile) {
	slices.SortStableFunc(r.payload.Manifests, InOrder)
	slices.SortStableFunc(r.payload.Tests, inTestOrder)
	included := slices.Concat(r.payload.Manifests, r.payload.Tests)
	r.report(duplicates(included, r.payload.Filter)...)
	r.limitProblems()
	r.payload.Hash, r.payload.Content = hash(included), hashContent(found, r.payload.Images)
}

// filter returns the filter of the options with its defaults: the major version is that of the release, and a cluster
// profile implies the default feature set and no enabled feature gates. Every reader of a release gets the same
// defaults here.
func (r *reader) filter() Filter {
	filter := r.options.Filter
	if filter.MajorVersion == 0 {
		if parsed, err := version.ParseSemantic(r.payload.Version); err == nil {
			filter.MajorVersion = uint64(parsed.Major())
		}
	}
	if filter.Profile != "" {
		filter.FeatureSet = cmp.Or(filter.FeatureSet, DefaultFeatureSet)
		if filter.FeatureGates == nil {
			filter.FeatureGates = []string{}
		}
	}
	return filter
}

// list finds the files to read, in order, and reads the metadata beside them.
func (r *reader) list() []*manifestFile {
	root, err := fs.ReadDir(r.files, ".")
	if err != nil {
		r.report(Problem{File: ".", Cause: Unreadable, Message: withoutPath(err)})
		return nil
	}
	var found []*manifestFile
	folders := []string{"."}
	isRelease := slices.ContainsFunc(root, func(e fs.DirEntry) bool { return e.Name() == ReleaseFolder })
	if isRelease {
		folders = []string{TemplatesFolder, ReleaseFolder}
		r.readMetadata(ReleaseFolder, false)
	} else {
		r.readMetadata(".", true)
	}
	for _, folder := range folders {
		found = append(found, r.listFolder(folder)...)
	}
	for i, file := range found {
		file.place = i
	}
	hasSettings := slices.ContainsFunc(root, func(e fs.DirEntry) bool { return e.Name() == SettingsFile })
	if hasSettings {
		r.payload.beside = append(r.payload.beside, SettingsFile)
	}
	if len(found) == 0 && len(r.problems) == 0 {
		message := "no manifests found: a manifest is a .yaml, .yml or .json file"
		if hasSettings {
			message += ", and " + SettingsFile + " has the settings of a folder"
		}
		if _, err := fs.Stat(r.files, TemplatesFolder); err == nil && !isRelease {
			message += `; did you mean its folder "manifests"?`
		}
		r.report(Problem{File: folders[len(folders)-1], Cause: Unreadable, Message: message})
	}
	return found
}

func (r *reader) listFolder(folder string) []*manifestFile {
	entries, err := fs.ReadDir(r.files, folder)
	if errors.Is(err, fs.ErrNotExist) && folder == TemplatesFolder {
		return nil
	}
	if err != nil {
		r.report(Problem{File: folder, Cause: Unreadable, Message: withoutPath(err)})
		return nil
	}
	var found []*manifestFile
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		switch {
		case slices.Contains([]string{MetadataFile, ImagesFile}, entry.Name()), name == SettingsFile:
		case entry.Name() == SettingsFile:
			r.reportMislabelled(name, "it is not read here: move it to the folder above")
		case !IsManifest(name) || entry.IsDir():
			r.payload.Ignored = append(r.payload.Ignored, name)
		default:
			found = append(found, &manifestFile{
				File:       File{Path: name},
				isTemplate: folder == TemplatesFolder,
				options:    &r.options,
			})
		}
	}
	return found
}

// readAll reads files in parallel, each into its own manifestFile.
func (r *reader) readAll(ctx context.Context, found []*manifestFile) error {
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, file := range found {
		group.Go(func() error {
			r.readManifests(inGroup, file)
			return inGroup.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// readManifests reads one file.
func (r *reader) readManifests(ctx context.Context, file *manifestFile) {
	text, err := r.readText(ctx, file)
	if err != nil {
		file.problems = append(file.problems, unreadableProblem(file.Path, 0, 0, err))
		return
	}
	chunks, wrong := split(text)
	isWithin := r.budget.take(costOf(text, chunks))
	for _, chunk := range chunks {
		if ctx.Err() != nil || !isWithin {
			return // the caller reports why
		}
		documents, err := r.budget.decode(ctx, chunk)
		for i, d := range documents {
			isWithin = r.budget.take(d.cost(i))
			file.add(d)
		}
		if err != nil {
			file.Documents++
			file.report(unreadableProblem(file.Path, file.Documents, chunk.line, err))
		}
	}
	if wrong != nil {
		file.report(unreadableProblem(file.Path, file.Documents+1, 0, wrong))
	}
}

// readText reads the text of a file, with its images substituted and rendered if it
// is a template.
func (r *reader) readText(ctx context.Context, file *manifestFile) ([]byte, error) {
	text, err := fs.ReadFile(r.files, file.Path)
	if err != nil {
		return nil, errors.New(withoutPath(err))
	}
	file.sum = sha256.Sum256(text)
	if end := bytes.TrimRight(text, "\r\n"); len(end) == len(text) {
		file.UnendedLine = 1 + bytes.Count(text, []byte("\n"))
	}
	r.reportPlaceholders(file, text)
	text, err = r.rewrite(file, text)
	if err != nil || !file.isTemplate {
		return text, err
	}
	if r.options.ReleaseImage == "" && bytes.Contains(text, []byte(".ReleaseImage")) {
		file.problems = append(file.problems, Problem{File: file.Path, Cause: Imageless,
			Message: "its template has the release's own image, which is not known here and left empty"})
	}
	rendered, err := renderTemplate(ctx, text, templateData{
		ReleaseImage:   r.options.ReleaseImage,
		ClusterProfile: r.options.Filter.Profile,
		Images:         r.payload.Images,
	})
	file.isShifted = err == nil && bytes.Count(text, []byte("\n")) != bytes.Count(rendered, []byte("\n"))
	return rendered, err
}

// add adds a document of the file. Text before the first separator may be a
// comment on the file, and Helm writes a comment for templates without manifests, too; other empty documents are
// probably a mistake.
func (f *manifestFile) add(d decodedDocument) {
	if d.value == nil {
		isSource := bytes.HasPrefix(bytes.TrimSpace(d.text.text), []byte("# Source: "))
		if f.IsRendered = f.IsRendered || isSource; d.text.line > 1 && !isSource {
			f.Empty = append(f.Empty, d.text.line)
		} else if f.options.KeepText {
			f.Comments = d.text.text
		}
		return
	}
	f.Documents++
	m, problems := (&document{decodedDocument: d, path: f.Path, number: f.Documents}).manifest()
	if f.options.LeaveOutNewer && slices.ContainsFunc(problems, func(p Problem) bool { return p.IsNewer }) {
		for i := range problems { // the newer Runlevel may have other rules for the whole document
			problems[i].IsNewer = true
		}
		m = nil
	}
	f.report(problems...)
	if m != nil {
		m.place = f.place
		m.isShifted = f.isShifted
		m.sum = sha256.Sum256(d.text.text)
		if f.options.KeepText {
			m.text = d.text
		}
		f.manifests = append(f.manifests, m)
	}
}

// LineNote is appended to messages whose line number counts lines of the rendered template.
const LineNote = " (the line is that of the rendered template)"

func (f *manifestFile) report(problems ...Problem) {
	for _, p := range problems {
		if f.isShifted && p.Line > 0 {
			p.Message += LineNote
		}
		if len(f.problems) >= maxProblems && p.IsWarning() {
			f.unlisted++
			continue
		}
		f.problems = append(f.problems, p)
	}
}

// decode reads the documents of a chunk: one in YAML, any number in JSON.
func (c chunk) decode() ([]decodedDocument, error) {
	var jsonErr error
	if utilyaml.IsJSONBuffer(c.text) {
		var documents []decodedDocument
		documents, jsonErr = decodeJSON(c.text)
		for i := range documents {
			documents[i].text.line += c.line - 1
			documents[i].text.offset += c.offset
		}
		if jsonErr == nil || len(documents) > 0 {
			return documents, jsonErr
		}
	}
	d, err := c.decodeYAML() // YAML may begin with a brace, too
	switch {
	case err != nil && jsonErr != nil:
		return nil, jsonErr
	case err != nil:
		return nil, err
	}
	d.text = c
	return []decodedDocument{d}, nil
}
