"""Layouts: meshes, configurations, the regions that parts hold and need, and redistributions between them."""
