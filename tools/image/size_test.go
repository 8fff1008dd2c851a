package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var update = flag.Bool("update", false, "write the sizes of the programs")

// recordedSizes is a file with the sizes of the stripped programs for linux/amd64.
const recordedSizes = "testdata/sizes.json"

// maxGrowth is the percentage by which a program may grow until its size is recorded again.
const maxGrowth = 5

// sizes are the sizes of programs in bytes, by name, as a minor version of Go links them.
type sizes struct {
	Go       string         `json:"go"`
	Programs map[string]int `json:"programs"`
}

// TestProgramsDoNotGrow compares the sizes of the programs with recorded ones.
func TestProgramsDoNotGrow(t *testing.T) {
	programs, err := (&builder{source: "../.."}).build(&v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	major, rest, _ := strings.Cut(runtime.Version(), ".")
	minor, _, _ := strings.Cut(rest, ".")
	got := sizes{Go: major + "." + minor, Programs: map[string]int{}}
	for _, program := range programs {
		got.Programs[program.path] = len(program.content)
	}
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		if err == nil {
			err = os.WriteFile(recordedSizes, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var want sizes
	text, err := os.ReadFile(recordedSizes)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got.Go != want.Go {
		t.Skipf("sizes are recorded for %s, this is %s: run this test with -update", want.Go, got.Go)
	}
	for name, size := range got.Programs {
		if recorded := want.Programs[name]; size > recorded+recorded*maxGrowth/100 {
			t.Errorf("%s grew from %.1f to %.1f MB (at most %d %%). Which packages did: build it before and after the "+
				"change without -s -w, and compare the output of go tool nm -size -sort size. By a third: see "+
				"docs/architecture.md, \"The size of the programs\". If the new code is worth it, record the size: "+
				"cd tools && go test ./image -run %s -update",
				name, float64(recorded)/1e6, float64(size)/1e6, maxGrowth, t.Name())
		}
	}
}
