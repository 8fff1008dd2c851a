package main

import "strings"

// A tool is one way of applying a payload.
type tool struct {
	name     string // also the name of its payload
	title    string // heading in tables
	program  string
	most     int // the maximum number of objects, to limit the time; 0 for any number
	commands func(written files, isFirst bool) []command
}

// A command is a command line; its first word is a program.
type command []string

// tools returns all tools in the order of the tables. docs/performance.md describes their differences.
func tools() []tool {
	return []tool{
		{name: "floor", title: "floor", program: "floor", commands: func(written files, _ bool) []command {
			return []command{{"floor", written.folder}}
		}},
		{name: "floor-wait", title: "floor --wait", program: "floor", commands: func(written files, _ bool) []command {
			return []command{{"floor", "--wait", written.folder}}
		}},
		{name: "runlevel", title: "Runlevel", program: "runlevel", commands: func(written files, _ bool) []command {
			return []command{runlevelApply("runlevel", written)}
		}},
		{name: "runlevel-no-wait", title: "Runlevel --no-wait", program: "runlevel",
			commands: func(written files, _ bool) []command {
				return []command{append(runlevelApply("runlevel-no-wait", written), "--no-wait")}
			}},
		{name: "kubectl", title: "kubectl", program: "kubectl", most: 1000, commands: kubectlApply},
		{name: "helm", title: "helm", program: "helm", commands: func(written files, _ bool) []command {
			return []command{{"helm", "upgrade", "--install", "helm", written.chart, "--namespace=default",
				"--wait=false"}}
		}},
		{name: "kapp", title: "kapp", program: "kapp", commands: func(written files, _ bool) []command {
			return []command{{"kapp", "deploy", "--yes", "--app=kapp", "--namespace=default", "--file", written.folder,
				"--wait=false"}}
		}},
	}
}

func runlevelApply(name string, written files) command {
	return command{"runlevel", "apply", written.folder, "--name", name, "--no-progress", "--timeout=5m"}
}

// kubectlApply applies namespaces and definitions before the rest the first time, since kubectl does not wait for them.
func kubectlApply(written files, isFirst bool) []command {
	all := command{"kubectl", "apply", "--server-side", "-f", written.folder}
	if !isFirst {
		return []command{all}
	}
	return []command{
		{"kubectl", "apply", "--server-side", "-f", strings.Join(written.prerequisites, ",")},
		{"kubectl", "wait", "crd", "--all", "--for=condition=Established"},
		all,
	}
}
