"""The commands of a project's manage.py.

commands  where Django finds them
"""
