package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/oci"
)

// A location is the location of a release.
type location struct {
	kind  Format
	path  string       // path of a release on disk
	image oci.Location // of an image in a registry or layout

	name, version string // name and version of an applied release
}

// appliedRef matches a version that was applied. An image by digest has a colon after the @, and one by tag has no @.
var appliedRef = regexp.MustCompile(`^([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)@([^:/@]*)$`)

// IsApplied reports whether a ref is a version that was applied, such as shop@3, and nothing on disk.
func IsApplied(ref string) bool {
	found, err := locate(ref, false)
	return err == nil && found.kind == Applied
}

// IsByDigest reports whether a ref is an image by digest, and nothing on disk.
func IsByDigest(ref string) bool {
	found, err := locate(ref, false)
	return err == nil && found.kind == Image && strings.Contains(found.image.Identifier, ":")
}

// CanBeName reports whether a ref can be the name of a release. It may also be a file or folder.
func CanBeName(ref string) bool { return appliedRef.MatchString(ref + "@") }

// locate returns the location of ref. It reads the disk, but never the network.
func locate(ref string, insecure bool) (location, error) {
	if ref == InputRef {
		return location{kind: Input}, nil
	}
	info, err := os.Stat(ref)
	switch {
	case err == nil:
		return locateOnDisk(ref, info)
	case errors.Is(err, fs.ErrPermission):
		return location{}, oci.WithoutPath(err)
	}
	for i, c := range ref {
		if (c == ':' || c == '@') && oci.IsLayout(ref[:i]) {
			return location{kind: Layout, image: oci.Location{Path: ref[:i], Identifier: ref[i+1:]}}, nil
		}
	}
	if strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "~") ||
		filepath.IsAbs(ref) {
		return location{}, &oci.RewordedError{Text: "no such file or folder", Err: fs.ErrNotExist}
	}
	if parts := appliedRef.FindStringSubmatch(ref); parts != nil {
		return location{kind: Applied, name: parts[1], version: parts[2]}, nil
	}
	if scheme, rest, found := strings.Cut(ref, "://"); found {
		return location{}, phrase{subject: strconv.Quote(ref), text: explainScheme(scheme, rest)}
	}
	image, err := oci.ParseRegistry(ref, insecure)
	if err != nil {
		text := "is neither a file or folder here nor an image reference: an image needs its registry and a tag or " +
			"digest, as in registry.example/repo:tag"
		if appliedRef.MatchString(ref + "@") {
			text += `; a release on the cluster is written NAME@ (see "runlevel list")`
		}
		return location{}, phrase{subject: strconv.Quote(ref), text: text}
	}
	return location{kind: Image, image: image}, nil
}

// explainScheme returns the problem of a reference with a scheme, and the correction.
func explainScheme(scheme, rest string) string {
	switch scheme {
	case "docker", "oci":
		return "has a scheme: write the image without it, as in " + rest
	case "http", "https", "git", "ssh", "file", "s3":
		return "is a URL: download or clone it, and name the folder, archive or image"
	default:
		return "has an unknown scheme: name a folder, an archive or an image, as in registry.example/repo:tag"
	}
}

func locateOnDisk(path string, info fs.FileInfo) (location, error) {
	switch {
	case info.Mode().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
		return location{kind: File, path: path}, nil
	case (info.IsDir() || info.Mode().IsRegular()) && oci.IsLayout(path):
		return location{kind: Layout, image: oci.Location{Path: path}}, nil
	case info.IsDir():
		return location{kind: Directory, path: path}, checkRendered(path)
	case info.Mode().IsRegular():
		return location{kind: Archive, path: path}, nil
	default:
		return location{}, phrase{text: "is neither a file nor a folder"}
	}
}
