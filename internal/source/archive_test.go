package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/runlevel/runlevel/internal/source"
)

func archive(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "release.archive")
	writeFile(t, path, content)
	return path
}

func TestArchivesAreKnownByTheirContent(t *testing.T) {
	plain := tarOf(t, entriesOf(small)...)
	for name, content := range map[string][]byte{
		"a tar":                         plain,
		"a tar.gz":                      gzipped(t, plain),
		"a tar.zst":                     zstded(t, plain),
		"a tar.gz in parts":             append(gzipped(t, plain[:700]), gzipped(t, plain[700:])...),
		"a tar with more after its end": append(bytes.Clone(plain), bytes.Repeat([]byte{0}, 20*512)...),
	} {
		t.Run(name, func(t *testing.T) {
			release := open(t, archive(t, content), source.Options{})
			checkFiles(t, release.FS, small)
			if release.Kind != source.Archive {
				t.Errorf("got kind %q", release.Kind)
			}
		})
	}
}

func TestAcceptedArchives(t *testing.T) {
	for name, test := range map[string]struct {
		entries []tarEntry
		want    map[string]string
	}{
		"names may begin with a dot": {
			[]tarEntry{folder("./"), folder("./manifests/"), file("./manifests/a.yaml", "a")},
			map[string]string{"manifests/a.yaml": "a"},
		},
		"a single folder at the top is the release": {
			[]tarEntry{folder("release/"), file("release/manifests/a.yaml", "a"), file("release/b.yaml", "b")},
			map[string]string{"manifests/a.yaml": "a", "b.yaml": "b"},
		},
		"but not if it's called manifests": {
			[]tarEntry{file("manifests/a.yaml", "a")},
			map[string]string{"manifests/a.yaml": "a"},
		},
		"nor if there is something beside it": {
			[]tarEntry{file("release/a.yaml", "a"), file("README", "r")},
			map[string]string{"release/a.yaml": "a", "README": "r"},
		},
		"a single file is not a folder": {
			[]tarEntry{file("a.yaml", "a")},
			map[string]string{"a.yaml": "a"},
		},
		"the commit that git archive writes is ignored": {
			[]tarEntry{{kind: tar.TypeXGlobalHeader}, file("a.yaml", "a")},
			map[string]string{"a.yaml": "a"},
		},
		"the same file may be there twice": {
			[]tarEntry{file("a.yaml", "a"), file("./a.yaml", "a")},
			map[string]string{"a.yaml": "a"},
		},
		"an empty file is a file": {
			[]tarEntry{file("a.yaml", ""), file("b.yaml", "b")},
			map[string]string{"a.yaml": "", "b.yaml": "b"},
		},
		"two dots within a name are none": {
			[]tarEntry{file("a..b", "a"), file("c", "")},
			map[string]string{"a..b": "a", "c": ""},
		},
		"links within it work": {
			[]tarEntry{
				symlink("m/first.yaml", "../n/a.yaml"), file("n/a.yaml", "a"), symlink("all", "n"),
				hardLink("m/hard.yaml", "n/a.yaml"), symlink("chain", "all/deep/../a.yaml"), file("n/deep/b.yaml", "b"),
			},
			map[string]string{
				"m/first.yaml": "a", "n/a.yaml": "a", "n/deep/b.yaml": "b", "all/a.yaml": "a",
				"all/deep/b.yaml": "b", "m/hard.yaml": "a", "chain": "a",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkFiles(t, open(t, archive(t, tarOf(t, test.entries...)), source.Options{}).FS, test.want)
		})
	}
}

func TestRefusedArchives(t *testing.T) {
	for name, test := range map[string]struct {
		entries []tarEntry
		want    string
	}{
		"a name that leads out": {[]tarEntry{file("../a.yaml", "a")},
			`REF: entry "../a.yaml": its name has ".." in it`},
		"a name that goes in again": {[]tarEntry{file("m/../a.yaml", "a")},
			`REF: entry "m/../a.yaml": its name has ".." in it`},
		"an absolute name": {[]tarEntry{file("/etc/a.yaml", "a")},
			`REF: entry "/etc/a.yaml": its name is absolute`},
		"a backslash": {[]tarEntry{file(`m\a.yaml`, "a")},
			`REF: entry "m\\a.yaml": its name has a backslash or zero byte in it`},
		"a name that isn't text": {[]tarEntry{file("m/\xff", "a")}, `REF: entry "m/\xff": its name isn't UTF-8`},
		"a very long name": {
			[]tarEntry{file(strings.Repeat("d/", 2048)+"a", "a")},
			`REF: entry "` + strings.Repeat("d/", 50) + `"…: its name has more than 4096 bytes`,
		},
		"two files of one name": {[]tarEntry{file("a.yaml", "a"), file("./a.yaml", "b")},
			`REF: entry "./a.yaml": the archive has it twice, with different content`},
		"a file as a folder": {[]tarEntry{file("a", "a"), file("a/b", "b")},
			`REF: entry "a/b": it's in "a", which is not a folder`},
		"a folder as a file": {[]tarEntry{file("a/b", "b"), file("a", "a")},
			`REF: entry "a": the archive has it twice, with different content`},
		"a file behind a link": {[]tarEntry{symlink("a", "b"), file("a/c", "c")},
			`REF: entry "a/c": it's in "a", which is not a folder`},
		"a pipe": {[]tarEntry{{name: "p", kind: tar.TypeFifo}},
			`REF: entry "p": is a device, pipe or other special file, which a release can't have`},
		"a device": {[]tarEntry{{name: "d", kind: tar.TypeChar}},
			`REF: entry "d": is a device, pipe or other special file, which a release can't have`},
		"an absolute link": {[]tarEntry{symlink("m/l", "/etc/passwd")},
			`REF: link "m/l" to "/etc/passwd": absolute targets are not allowed in an archive`},
		"a link that leads out": {[]tarEntry{symlink("m/l", "../../etc/passwd")},
			`REF: link "m/l" to "../../etc/passwd": the target is outside of the archive`},
		"out and in again": {[]tarEntry{symlink("m/l", "../../m/a"), file("m/a", "a")},
			`REF: link "m/l" to "../../m/a": the target is outside of the archive`},
		"a link to nothing": {[]tarEntry{symlink("m/l", "a")}, `REF: link "m/l" to "a": the target does not exist`},
		"a link into a file": {[]tarEntry{symlink("m/l", "a/b"), file("m/a", "a")},
			`REF: link "m/l" to "a/b": the target does not exist`},
		"a link to itself": {[]tarEntry{symlink("m/l", "l")}, `REF: link "m/l" to "l": symbolic link loop`},
		"a link to where it is": {[]tarEntry{symlink("m/l", ".")},
			`REF: link "m/l" to ".": symbolic link loop`},
		"links in a circle": {[]tarEntry{symlink("a/l", "../b"), symlink("b/l", "../a")},
			`REF: link "b/l" to "../a": symbolic link loop`},
		"a hard link to the outside": {[]tarEntry{hardLink("l", "../a")},
			`REF: entry "l": hard link to "../a": its name has ".." in it`},
		"an absolute hard link": {[]tarEntry{hardLink("l", "/etc/passwd")},
			`REF: entry "l": hard link to "/etc/passwd": its name is absolute`},
		"a hard link to nothing": {[]tarEntry{hardLink("l", "a")},
			`REF: entry "l": hard link to "a", which is not a file that comes before it`},
		"a hard link to a folder": {[]tarEntry{folder("a"), hardLink("l", "a")},
			`REF: entry "l": hard link to "a", which is not a file that comes before it`},
		"an image layout": {[]tarEntry{file("oci-layout", "{}"), file("index.json", "{}")},
			"REF: the layout has no image"},
		"an image layout below": {[]tarEntry{file("l/oci-layout", "{}"), file("l/index.json", "{}")},
			"REF: the layout has no image"},
	} {
		t.Run(name, func(t *testing.T) {
			checkFailure(t, archive(t, tarOf(t, test.entries...)), source.Options{}, test.want)
		})
	}
}

func TestAnArchiveOfALayout(t *testing.T) {
	dir := newLayout(t, map[string]v1.Image{"1.0": smallImage(t), "2.0": variant(t, "two")})
	for _, top := range []string{"", "./", "release/"} {
		var entries []tarEntry
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, found fs.DirEntry, err error) error {
			if err != nil || found.IsDir() {
				return err
			}
			content, err := os.ReadFile(filepath.Join(dir, path))
			entries = append(entries, file(top+path, string(content)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		packed := tarOf(t, entries...)
		path := archive(t, packed)
		release := open(t, path+":1.0", source.Options{})
		checkFiles(t, release.FS, small)
		if want := digestOf(t, smallImage(t)); release.Digest != want || release.Kind != source.Layout {
			t.Errorf("release is a %s with digest %s, not %s", release.Kind, release.Digest, want)
		}
		open(t, path+"@"+digestOf(t, variant(t, "two")), source.Options{})
		checkFailure(t, archive(t, gzipped(t, packed)), source.Options{},
			"REF holds an OCI image layout, which has to be an uncompressed file")
	}
}

func TestFilesThatAreNotArchives(t *testing.T) {
	plain := tarOf(t, entriesOf(small)...)
	noise, noisy := rand.New(rand.NewPCG(1, 2)), make([]byte, 64<<10) // always the same: some noise is a valid stream
	for i := range noisy {
		noisy[i] = byte(noise.IntN(256))
	}
	big := tarOf(t, file("a", string(noisy)), file("b", "b"))
	zipped, packed := gzipped(t, big), zstded(t, big)
	flipped := bytes.Clone(zipped)
	flipped[len(flipped)-6]++ // its checksum
	flippedZstd := bytes.Clone(packed)
	flippedZstd[len(flippedZstd)-2]++
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"an empty file": {nil, "REF is not a tar, tar.gz or tar.zst archive"},
		"text": {[]byte(strings.Repeat("kind: A\n", 200)),
			"REF is not a tar, tar.gz or tar.zst archive"},
		"a short text":             {[]byte("a"), "REF is not a tar, tar.gz or tar.zst archive"},
		"compressed text":          {gzipped(t, []byte("kind: A\n")), "REF is not a tar, tar.gz or tar.zst archive"},
		"zeros":                    {make([]byte, 4096), "REF is not a tar, tar.gz or tar.zst archive"},
		"a tar cut in a file":      {big[:2000], `REF: entry "a": it's cut off: the end is missing`},
		"a tar cut between files":  {big[:512+len(noisy)], "REF: it's cut off: the end is missing"},
		"a tar cut before its end": {plain[:4*512], "REF: it's cut off: the end is missing"},
		"a tar.gz cut in a file":   {zipped[:len(zipped)/2], `REF: entry "a": it's cut off: the end is missing`},
		"a tar.gz without its sum": {zipped[:len(zipped)-4], "REF: it's cut off: the end is missing"},
		"only the magic of gzip":   {[]byte("\x1f\x8b"), "REF: it's cut off: the end is missing"},
		"a tar.zst cut in a file":  {packed[:len(packed)/2], "REF: it's cut off: the end is missing"},
		"only the magic of zstd":   {[]byte("\x28\xb5\x2f\xfd"), "REF: it's cut off: the end is missing"},
		"a tar.gz of another sum":  {flipped, "REF: it's damaged: gzip: invalid checksum"},
		"a tar.zst of another sum": {flippedZstd, "REF: it's damaged: CRC check failed"},
		"rubbish after gzip's name": {append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), noisy...),
			"REF: it's damaged: its compressed content can't be unpacked"},
		"a tar of a wrong sum": {append([]byte("x"), plain[1:]...),
			"REF: it's damaged: archive/tar: invalid tar header"},
	} {
		t.Run(name, func(t *testing.T) {
			checkFailure(t, archive(t, test.content), source.Options{}, test.want)
		})
	}
}

// bomb is a gzip of a tar and then zeros without end, or nearly.
func bomb(t testing.TB, zeros int) []byte {
	t.Helper()
	var written bytes.Buffer
	writer := gzip.NewWriter(&written)
	if _, err := writer.Write(tarOf(t, file("a", "a"))); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for range zeros >> 20 {
		if _, err := writer.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return written.Bytes()
}

// linkBomb makes 2^depth files of depth*2 links.
func linkBomb(depth int) []tarEntry {
	entries := []tarEntry{file("a", "a")}
	for i := range depth {
		next := fmt.Sprintf("../d%d", i+1)
		entries = append(entries, symlink(fmt.Sprintf("d%d/x", i), next), symlink(fmt.Sprintf("d%d/y", i), next))
	}
	return append(entries, file(fmt.Sprintf("d%d/end", depth), "e"))
}

func TestAnArchiveHasBounds(t *testing.T) {
	files := tarOf(t, file("m/a", "aaaa"), file("m/b", "bbbb"))
	for name, test := range map[string]struct {
		content []byte
		limits  source.Limits
		want    string
	}{
		"a file": {files, source.Limits{File: 3}, `REF: "m/a" has 4 bytes: the limit for one file is 3 bytes`},
		"all files": {files, source.Limits{Total: 11},
			"REF: its files have more than 11 bytes together, which is the limit"},
		"how many": {files, source.Limits{Files: 2}, "REF: it has more than 2 files and folders, which is the limit"},
		"folders count": {tarOf(t, file("a/b/c/d/e", "")), source.Limits{Files: 4},
			"REF: it has more than 4 files and folders, which is the limit"},
		"a huge file": {tarOf(t, file("a", strings.Repeat("\x00", 33<<20))), source.Limits{},
			`REF: "a" has 34603008 bytes: the limit for one file is 32 MiB`},
		"a zip bomb": {bomb(t, 64<<20), source.Limits{Unpacked: 1 << 20},
			"REF: it unpacks to more than 1 MiB, which is the limit"},
		"a zstd bomb": {zstded(t, append(tarOf(t, file("a", "a")), make([]byte, 64<<20)...)),
			source.Limits{Unpacked: 3 << 10}, "REF: it unpacks to more than 3 KiB, which is the limit"},
		"links that fork": {tarOf(t, linkBomb(30)...), source.Limits{},
			"REF: it has more than 100000 files and folders, which is the limit"},
		"a hungry zstd": {
			zstded(t, append(tarOf(t, file("a", "a")), make([]byte, 1<<20)...), zstd.WithWindowSize(256<<20),
				zstd.WithEncoderLevel(zstd.SpeedFastest)),
			source.Limits{}, "REF: unpacking it needs more memory than 128 MiB, which is the limit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkFailure(t, archive(t, test.content), source.Options{Limits: test.limits}, test.want)
		})
	}
	t.Run("at them all is well", func(t *testing.T) {
		limits := source.Limits{File: 4, Total: 15, Files: 3, Unpacked: int64(len(files))}
		open(t, archive(t, files), source.Options{Limits: limits})
	})
}

func TestAnArchiveThatMayNotBeRead(t *testing.T) {
	path := archive(t, nil)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if unreadable, err := os.Open(path); err == nil {
		unreadable.Close()
		t.Skip("everything can be read here")
	}
	checkFailure(t, path, source.Options{}, "REF: permission denied")
}

func BenchmarkOpenArchive(b *testing.B) {
	var entries []tarEntry
	for i := range 600 {
		var content strings.Builder
		for content.Len() < 27<<10 {
			fmt.Fprintf(&content, "- name: item-%d\n  value: %x\n", i, rand.Uint64())
		}
		entries = append(entries, file(fmt.Sprintf("release/manifests/0000_%03d_item.yaml", i), content.String()))
	}
	plain := tarOf(b, entries...)
	for name, content := range map[string][]byte{"tar": plain, "tar.gz": gzipped(b, plain),
		"tar.zst": zstded(b, plain)} {
		b.Run(name, func(b *testing.B) {
			path := archive(b, content)
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				release, err := source.Open(b.Context(), path, source.Options{})
				if err != nil {
					b.Fatal(err)
				}
				release.Close()
			}
		})
	}
}
