package main

// usage is the help, before the flags.
const usage = `A runtime extension of Cluster API that updates simulated machines (KwokMachines) in place: the version, labels and
operating system image of their Nodes. Register it with an ExtensionConfig, whose settings "delay" and "fail" say how
long an update takes, and with which message it fails.

Usage:
  kwok-extension -cert-file FILE -key-file FILE [flags]

Flags:
`
