"""Tests of anneal/pages."""
