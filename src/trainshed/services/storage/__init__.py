"""Buckets, objects, URIs, mirrors of cloud buckets."""
