package main

import "github.com/spf13/cobra"

func (c *cli) demoCmd() *cobra.Command { return &cobra.Command{Use: "demo"} }
